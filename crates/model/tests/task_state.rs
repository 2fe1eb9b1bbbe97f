//! The JSON of a task's state in every stage, byte for byte: clients of earlier versions read it.

use countersign_model::{Record, TaskId, TaskState};

/// For each case its name (`#`), then after each record (`>`) the state.
const GOLDEN: &str = include_str!("golden/task-states.txt");

#[test]
fn the_json_of_every_state_keeps_its_form() {
    let task: TaskId = "tk_01m7h4jys3gnc16g".parse().unwrap();
    let (mut case, mut state, mut checked) = ("", None::<TaskState>, 0);
    for line in GOLDEN.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            (case, state) = (name, None);
        } else if let Some(record) = line.strip_prefix("> ") {
            let record = Record::parse(record).unwrap();
            match &mut state {
                Some(state) => state.apply(&record),
                None => state = TaskState::begin(task, &record),
            }
        } else {
            let state = state.as_ref().unwrap();
            assert_eq!(serde_json::to_string(state).unwrap(), line, "{case}");
            assert_eq!(serde_json::from_str::<TaskState>(line).unwrap(), *state, "{case}");
            checked += 1;
        }
    }
    assert_eq!(checked, GOLDEN.lines().filter(|line| line.starts_with("> ")).count());
}
