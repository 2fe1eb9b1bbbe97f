//! The one table of tools: what a model may call, what each call takes, and what it becomes. MCP lists its rows word for
//! word; their order and words are part of what a model has learnt to expect.

use crate::{DisplaySafe, Refusal, RefusalCode, Tool};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolSpec {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    /// JSON Schema of its arguments, as text; [`ToolSpec::schema`] reads it.
    arguments: &'static str,
    /// A call changes nothing, however often it is made.
    pub read_only: bool,
    /// A call may remove or end something.
    pub destructive: bool,
    /// A call may reach what is outside of this machine.
    pub open_world: bool,
    pub becomes: ToolCallKind,
    /// MCP clients are offered it.
    pub mcp: bool,
}

/// What a call becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallKind {
    /// A task, which `POST /tasks` takes under this tool.
    Task(Tool),
    /// A task that only a session asks for, on its own route.
    SessionTask(Tool),
    /// No task: the call looks at one, or acts on one.
    Nothing,
}

/// Acts on a task or a session.
const CONTROL: ToolSpec = ToolSpec {
    name: "",
    title: "",
    description: "",
    arguments: "",
    read_only: false,
    destructive: false,
    open_world: false,
    becomes: ToolCallKind::Nothing,
    mcp: true,
};
const READS: ToolSpec = ToolSpec { read_only: true, ..CONTROL };
/// Does its work on one file, as a task. MCP clients have file tools of their own.
const FILE: ToolSpec = ToolSpec { mcp: false, ..CONTROL };

pub static ALL: &[ToolSpec] = &[
    ToolSpec {
        name: "run",
        title: "Run a command",
        description: "Runs shell text as a task. Answers when it has ended or wait_s has passed, with its task_id either way.",
        arguments: r#"{"type":"object","required":["command"],"additionalProperties":false,"properties":{
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
        destructive: true,
        open_world: true,
        becomes: ToolCallKind::Task(Tool::Shell),
        ..CONTROL
    },
    ToolSpec {
        name: "task_list",
        title: "List tasks",
        description: "The tasks that may be seen from here, newest first.",
        arguments: r#"{"type":"object","additionalProperties":false,"properties":{
            "status":{"type":"string","enum":["queued","running","exited","cancelled","failed"]},
            "limit":{"type":"integer","minimum":1,"maximum":100},
            "cursor":{"type":"string","description":"`next` of the page before"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_status",
        title: "Look at a task",
        description: "Whether a task waits, runs or has ended, and how.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_wait",
        title: "Wait for a task",
        description: "Waits until a task has ended, or wait_s has passed; also for one that waits for approval.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600,"description":"50 by default"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_output",
        title: "Read output",
        description: "Output of a task by byte offset, by lines, or its last lines; while it runs and after.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "stream":{"type":"string","enum":["stdout","stderr","pty"],"description":"stdout by default, pty for a terminal"},
            "offset":{"type":"integer","minimum":0,"description":"From this byte on"},
            "max_bytes":{"type":"integer","minimum":1,"maximum":65536},
            "line":{"type":"integer","minimum":1,"description":"From this line on, with `lines`"},
            "lines":{"type":"integer","minimum":1,"maximum":2000},
            "tail":{"type":"integer","minimum":1,"maximum":2000,"description":"The last so many lines"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_search",
        title: "Search output",
        description: "Lines of a task's output that match, with their places; resumable.",
        arguments: r#"{"type":"object","required":["task_id","pattern"],"additionalProperties":false,"properties":{
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
    ToolSpec {
        name: "task_input",
        title: "Type into a task",
        description: "Sends text or keys to a task that takes input.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "text":{"type":"string"},
            "keys":{"type":"array","items":{"type":"string"},"description":"Keys such as enter, ctrl-c, up"},
            "eof":{"type":"boolean","description":"End of input"}}}"#,
        ..CONTROL
    },
    ToolSpec {
        name: "task_resize",
        title: "Resize a terminal",
        description: "Gives the terminal of a task another size.",
        arguments: r#"{"type":"object","required":["task_id","rows","cols"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "rows":{"type":"integer","minimum":1,"maximum":1000},
            "cols":{"type":"integer","minimum":1,"maximum":1000}}}"#,
        ..CONTROL
    },
    ToolSpec {
        name: "task_signal",
        title: "Signal a task",
        description: "Sends a signal to a task.",
        arguments: r#"{"type":"object","required":["task_id","signal"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "signal":{"type":"string","enum":["INT","QUIT","TERM","HUP","KILL","USR1","USR2","STOP","CONT","WINCH","TSTP"]}}}"#,
        destructive: true,
        ..CONTROL
    },
    ToolSpec {
        name: "task_cancel",
        title: "Cancel a task",
        description: "Withdraws a task that waits, or ends one that runs, with everything that it started.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "reason":{"type":"string"}}}"#,
        destructive: true,
        ..CONTROL
    },
    ToolSpec {
        name: "set_working_directory",
        title: "Work in another directory",
        description: "Commands that name no directory run there from now on. Outside of what this session may read, a person is asked.",
        arguments: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Absolute"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600}}}"#,
        becomes: ToolCallKind::SessionTask(Tool::SetWorkingDirectory),
        ..CONTROL
    },
    ToolSpec {
        name: "receipt_get",
        title: "Get a receipt",
        description: "The signed account of a task that has ended: what was asked, who allowed it, what ran, how it ended.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "read_file",
        title: "Read a file",
        description: "Shows a file, or some of its lines, with secrets taken out.",
        arguments: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Below cwd, unless it is absolute"},
            "cwd":{"type":"string","description":"Absolute directory; by default the session's"},
            "first_line":{"type":"integer","minimum":1,"description":"The first line to show"},
            "line_count":{"type":"integer","minimum":1,"description":"How many lines to show"}}}"#,
        read_only: true,
        becomes: ToolCallKind::Task(Tool::ReadFile),
        ..FILE
    },
    ToolSpec {
        name: "write_file",
        title: "Write a file",
        description: "Makes a file hold exactly this content.",
        arguments: r#"{"type":"object","required":["path","content"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Below cwd, unless it is absolute"},
            "cwd":{"type":"string","description":"Absolute directory; by default the session's"},
            "content":{"type":"string","description":"All that the file shall hold"}}}"#,
        destructive: true,
        becomes: ToolCallKind::Task(Tool::WriteFile),
        ..FILE
    },
    ToolSpec {
        name: "edit_file",
        title: "Edit a file",
        description: "Replaces a piece of a file, as read_file shows it, with another.",
        arguments: r#"{"type":"object","required":["path","old","new"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Below cwd, unless it is absolute"},
            "cwd":{"type":"string","description":"Absolute directory; by default the session's"},
            "old":{"type":"string","minLength":1,"description":"What stands there now"},
            "new":{"type":"string","description":"What shall stand there"},
            "all":{"type":"boolean","description":"Wherever it stands; without this it must stand there once"}}}"#,
        destructive: true,
        becomes: ToolCallKind::Task(Tool::EditFile),
        ..FILE
    },
];

static SCHEMAS: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    let read = |spec: &ToolSpec| serde_json::from_str(spec.arguments).expect("a test reads every schema of the table");
    ALL.iter().map(|spec| (spec.name, read(spec))).collect()
});

impl ToolSpec {
    /// JSON Schema of its arguments.
    #[must_use]
    pub fn schema(&self) -> &'static Value {
        &SCHEMAS[self.name]
    }

    /// Refuses arguments that the tool does not have, and a call without one that it needs.
    pub fn check_arguments(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let schema = self.schema();
        if let Some(name) = arguments.keys().find(|name| schema["properties"].get(name.as_str()).is_none()) {
            let shown = DisplaySafe::bounded(name, 40);
            return Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` takes no `{shown}`", self.name)));
        }
        let mut needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        match needed.find(|name| !arguments.contains_key(*name)) {
            Some(name) => Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` needs `{name}`", self.name))),
            None => Ok(()),
        }
    }
}

#[must_use]
pub fn named(name: &str) -> Option<&'static ToolSpec> {
    ALL.iter().find(|spec| spec.name == name)
}

/// The rows that MCP clients are offered, in order.
pub fn offered_by_mcp() -> impl Iterator<Item = &'static ToolSpec> {
    ALL.iter().filter(|spec| spec.mcp)
}

/// The tools that `POST /tasks` takes, in order.
pub fn requestable() -> impl Iterator<Item = Tool> {
    ALL.iter().filter_map(|spec| match spec.becomes {
        ToolCallKind::Task(tool) => Some(tool),
        ToolCallKind::SessionTask(_) | ToolCallKind::Nothing => None,
    })
}

/// Refuses a tool that grants can name and requests cannot.
pub fn check_requestable(tool: Tool) -> Result<(), Refusal> {
    if requestable().any(|known| known == tool) {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::Unsupported, format!("`{}` cannot be asked for: {}", tool.as_str(), use_one_of())))
}

fn use_one_of() -> String {
    let names: Vec<&str> = requestable().map(Tool::as_str).collect();
    format!("use one of {}", names.join(", "))
}

/// Every tool that a record or a grant may name is read; of a name that none has, the error says what can be asked for.
impl<'de> Deserialize<'de> for Tool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        let unknown =
            || D::Error::custom(format!("there is no tool `{}`: {}", DisplaySafe::bounded(&name, 40), use_one_of()));
        Tool::ALL.into_iter().find(|tool| tool.as_str() == name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn mcp_is_offered_the_tools_of_the_contract_in_their_order() {
        let names: Vec<&str> = offered_by_mcp().map(|spec| spec.name).collect();
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
    }

    #[test]
    fn every_row_has_a_closed_schema_and_hints_that_agree() {
        for spec in ALL {
            let schema = spec.schema();
            assert_eq!(schema["type"], "object", "{}", spec.name);
            assert_eq!(schema["additionalProperties"], false, "{}", spec.name);
            for needed in schema["required"].as_array().into_iter().flatten() {
                assert!(schema["properties"].get(needed.as_str().unwrap()).is_some(), "{}: {needed}", spec.name);
            }
            assert!(!spec.title.is_empty() && !spec.description.is_empty(), "{}", spec.name);
            assert!(!(spec.read_only && spec.destructive), "{}", spec.name);
        }
        let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), ALL.len(), "a name stands for one tool");
        assert!(ALL.iter().all(|spec| named(spec.name).is_some_and(|found| std::ptr::eq(found, spec))));
    }

    #[test]
    fn the_tools_that_can_be_asked_for_are_those_that_run() {
        let names: Vec<&str> = requestable().map(Tool::as_str).collect();
        assert_eq!(names, ["shell", "read_file", "write_file", "edit_file"]);
        for tool in Tool::ALL {
            let runs = tool == Tool::Shell || tool.is_builtin();
            assert_eq!(check_requestable(tool).is_ok(), runs, "{}", tool.as_str());
        }
        let refusal = check_requestable(Tool::GitLog).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Unsupported);
        assert_eq!(
            refusal.message,
            "`git_log` cannot be asked for: use one of shell, read_file, write_file, edit_file"
        );
    }

    #[test]
    fn a_tool_that_does_not_exist_is_refused_with_those_that_can_be_asked_for() {
        let error = serde_json::from_str::<Tool>(r#""bash""#).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no tool `bash`: use one of shell, read_file, write_file, edit_file"),
            "{error}"
        );
        let error = serde_json::from_str::<Tool>(r#""\u001b[2J""#).unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error}");
        assert!(serde_json::from_str::<Tool>("7").is_err());
    }

    #[test]
    fn every_tool_that_a_grant_or_a_record_names_reads_as_it_was_written() {
        for tool in Tool::ALL {
            let written = serde_json::to_string(&tool).unwrap();
            assert_eq!(written, format!("\"{}\"", tool.as_str()));
            assert_eq!(serde_json::from_str::<Tool>(&written).unwrap(), tool);
            assert_eq!(serde_json::from_value::<Tool>(Value::from(tool.as_str())).unwrap(), tool);
        }
    }

    #[test]
    fn arguments_are_those_of_the_tool() {
        let check = |tool: &str, arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
            named(tool).unwrap().check_arguments(&arguments).map_err(|refusal| refusal.message)
        };
        assert_eq!(check("run", serde_json::json!({"command": "ls"})), Ok(()));
        assert_eq!(check("run", serde_json::json!({"command": "ls", "x": 1})), Err("`run` takes no `x`".to_owned()));
        assert_eq!(check("run", serde_json::json!({})), Err("`run` needs `command`".to_owned()));
        assert_eq!(check("task_list", serde_json::json!({})), Ok(()));
    }
}
