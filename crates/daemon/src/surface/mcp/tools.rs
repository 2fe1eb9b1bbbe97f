//! The tools that a model is offered, as data. The order and the words are part of what a model has learnt to expect.

/// One tool.
pub(crate) struct Offered {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// JSON Schema of its arguments.
    pub(crate) schema: &'static str,
    /// It only looks.
    pub(crate) reads: bool,
    pub(crate) destroys: bool,
    pub(crate) reaches_out: bool,
}

/// Addresses that can be read.
pub(crate) struct Template {
    pub(crate) uri: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) mime: &'static str,
}

pub(crate) const INSTRUCTIONS: &str = "Commands run here are read by a gate first: what only reads runs at once, the rest \
    may wait for a person, some is refused; the reason says what to do instead. Every command is a task with an id that \
    outlives this call: `run` waits for it up to wait_s, then `task_wait`, `task_output` and `task_search` go on. Output is \
    shown in part; all of it is kept, with secrets taken out. A person approves, never a tool.";

pub(crate) const TEMPLATES: &[Template] = &[
    Template {
        uri: "countersign://tasks/{task_id}/{stream}{?offset,length}",
        name: "output",
        description: "Output of a task (stdout, stderr or pty), by range: at most 64 KiB a read",
        mime: "text/plain",
    },
    Template {
        uri: "countersign://tasks/{task_id}/receipt",
        name: "receipt",
        description: "The signed receipt of a task, a DSSE envelope",
        mime: "application/json",
    },
];

const NOTHING: Offered =
    Offered { name: "", title: "", description: "", schema: "", reads: false, destroys: false, reaches_out: false };
const READS: Offered = Offered { reads: true, ..NOTHING };

pub(crate) const TOOLS: &[Offered] = &[
    Offered {
        name: "run",
        title: "Run a command",
        description: "Runs shell text as a task. Answers when it has ended or wait_s has passed, with its task_id either way.",
        schema: r#"{"type":"object","required":["command"],"additionalProperties":false,"properties":{
            "command":{"type":"string","description":"Shell text, for bash"},
            "cwd":{"type":"string","description":"Absolute directory; by default the session's"},
            "timeout_s":{"type":"integer","minimum":1,"description":"End it after so many seconds"},
            "background":{"type":"boolean","description":"Answer at once; it goes on by itself"},
            "pty":{"type":"boolean","description":"Give it a terminal; needs a rationale"},
            "stdin":{"type":"boolean","description":"Input will be sent with task_input"},
            "title":{"type":"string"},
            "rationale":{"type":"string","description":"Why this is needed, for the person who may be asked"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600,"description":"How long to wait for its end; 50 by default"},
            "confinement":{"type":"string","enum":["shield","workspace","read_only"],"description":"The sandbox to run in; a wider one than it would get is asked about"},
            "network":{"type":"string","enum":["none","open"],"description":"open: it needs the network, which is asked about"},
            "on_disconnect":{"type":"string","enum":["detach","kill"],"description":"What becomes of it when this call is cancelled or the connection breaks; detach by default"}}}"#,
        destroys: true,
        reaches_out: true,
        ..NOTHING
    },
    Offered {
        name: "task_list",
        title: "List tasks",
        description: "The tasks that may be seen from here, newest first.",
        schema: r#"{"type":"object","additionalProperties":false,"properties":{
            "status":{"type":"string","enum":["queued","running","exited","cancelled","failed"]},
            "limit":{"type":"integer","minimum":1,"maximum":100},
            "cursor":{"type":"string","description":"`next` of the page before"}}}"#,
        ..READS
    },
    Offered {
        name: "task_status",
        title: "Look at a task",
        description: "Whether a task waits, runs or has ended, and how.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
    Offered {
        name: "task_wait",
        title: "Wait for a task",
        description: "Waits until a task has ended, or wait_s has passed; also for one that waits for approval.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600,"description":"50 by default"}}}"#,
        ..READS
    },
    Offered {
        name: "task_output",
        title: "Read output",
        description: "Output of a task by byte offset, by lines, or its last lines; while it runs and after.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "stream":{"type":"string","enum":["stdout","stderr","pty"],"description":"stdout by default, pty for a terminal"},
            "offset":{"type":"integer","minimum":0,"description":"From this byte on"},
            "max_bytes":{"type":"integer","minimum":1,"maximum":65536},
            "line":{"type":"integer","minimum":1,"description":"From this line on, with `lines`"},
            "lines":{"type":"integer","minimum":1,"maximum":2000},
            "tail":{"type":"integer","minimum":1,"maximum":2000,"description":"The last so many lines"}}}"#,
        ..READS
    },
    Offered {
        name: "task_search",
        title: "Search output",
        description: "Lines of a task's output that match, with their places; resumable.",
        schema: r#"{"type":"object","required":["task_id","pattern"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "pattern":{"type":"string"},
            "regex":{"type":"boolean"},
            "ignore_case":{"type":"boolean"},
            "stream":{"type":"string","enum":["stdout","stderr","pty"]},
            "context":{"type":"integer","minimum":0,"maximum":20},
            "max_results":{"type":"integer","minimum":1,"maximum":200},
            "after":{"type":"string","description":"`next` of the page before"}}}"#,
        ..READS
    },
    Offered {
        name: "task_input",
        title: "Type into a task",
        description: "Sends text or keys to a task that takes input.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "text":{"type":"string"},
            "keys":{"type":"array","items":{"type":"string"},"description":"Keys such as enter, ctrl-c, up"},
            "eof":{"type":"boolean","description":"End of input"}}}"#,
        ..NOTHING
    },
    Offered {
        name: "task_resize",
        title: "Resize a terminal",
        description: "Gives the terminal of a task another size.",
        schema: r#"{"type":"object","required":["task_id","rows","cols"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "rows":{"type":"integer","minimum":1,"maximum":1000},
            "cols":{"type":"integer","minimum":1,"maximum":1000}}}"#,
        ..NOTHING
    },
    Offered {
        name: "task_signal",
        title: "Signal a task",
        description: "Sends a signal to a task.",
        schema: r#"{"type":"object","required":["task_id","signal"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "signal":{"type":"string","enum":["INT","QUIT","TERM","HUP","KILL","USR1","USR2","STOP","CONT","WINCH","TSTP"]}}}"#,
        destroys: true,
        ..NOTHING
    },
    Offered {
        name: "task_cancel",
        title: "Cancel a task",
        description: "Withdraws a task that waits, or ends one that runs, with everything that it started.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "reason":{"type":"string"}}}"#,
        destroys: true,
        ..NOTHING
    },
    Offered {
        name: "set_working_directory",
        title: "Work in another directory",
        description: "Commands that name no directory run there from now on. Outside of what this session may read, a person is asked.",
        schema: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Absolute"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600}}}"#,
        ..NOTHING
    },
    Offered {
        name: "receipt_get",
        title: "Get a receipt",
        description: "The signed account of a task that has ended: what was asked, who allowed it, what ran, how it ended.",
        schema: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn tools_are_those_of_the_contract_and_their_schemas_read() {
        let names: Vec<&str> = TOOLS.iter().map(|t| t.name).collect();
        let wanted = [
            "run",
            "task_list",
            "task_status",
            "task_wait",
            "task_output",
            "task_search",
            "task_input",
            "task_resize",
            "task_signal",
            "task_cancel",
            "set_working_directory",
            "receipt_get",
        ];
        assert_eq!(names, wanted);
        for tool in TOOLS {
            let schema: Value = serde_json::from_str(tool.schema).unwrap();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            assert!(!tool.description.is_empty(), "{}", tool.name);
            assert!(!(tool.reads && tool.destroys), "{}", tool.name);
        }
    }
}
