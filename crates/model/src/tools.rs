//! The one table of tools: what a model may call, the arguments of each call, and what the call becomes. MCP lists the rows
//! verbatim and in this order; models rely on both.

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
    /// The JSON Schema of its arguments, as text; [`ToolSpec::schema`] parses it.
    arguments: &'static str,
    /// A call changes nothing.
    pub read_only: bool,
    /// A call may remove or stop something.
    pub destructive: bool,
    /// A call may reach other machines.
    pub open_world: bool,
    pub becomes: ToolCallKind,
    /// MCP clients get this tool.
    pub mcp: bool,
}

/// What a call becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallKind {
    /// A task, as from `POST /tasks` with this tool.
    Task(Tool),
    /// A task that only a session can request, on its own route.
    SessionTask(Tool),
    /// No task: the call reads or controls an existing one.
    Nothing,
}

/// The base of tools that control a task or a session.
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
/// The base of tools that work on one file, as a task. MCP clients have their own file tools.
const FILE: ToolSpec = ToolSpec { mcp: false, ..CONTROL };

pub static ALL: &[ToolSpec] = &[
    ToolSpec {
        name: "run",
        title: "Run a command",
        description: "Runs a shell command as a task. Returns when the task has ended or after wait_s seconds, in both cases with its task_id. If a person must approve the command first, the task waits; use task_wait to continue.",
        arguments: r#"{"type":"object","required":["command"],"additionalProperties":false,"properties":{
            "command":{"type":"string","description":"The command, as bash text"},
            "cwd":{"type":"string","description":"Absolute path of the directory to run in; the session's directory by default"},
            "timeout_s":{"type":"integer","minimum":1,"description":"Stop the task after this many seconds"},
            "background":{"type":"boolean","description":"Return immediately; the task keeps running"},
            "pty":{"type":"boolean","description":"Run in a terminal; requires a rationale"},
            "stdin":{"type":"boolean","description":"Keep standard input open for task_input"},
            "title":{"type":"string"},
            "rationale":{"type":"string","description":"Why the command is needed; shown to the person who approves it"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600,"description":"How many seconds to wait for the end of the task; 50 by default"},
            "confinement":{"type":"string","enum":["shield","workspace","read_only"],"description":"The sandbox to run in. A weaker one than the default needs approval"},
            "network":{"type":"string","enum":["none","open"],"description":"open: the command needs the network, which needs approval"},
            "on_disconnect":{"type":"string","enum":["detach","kill"],"description":"What happens to the task if this call is cancelled or the connection breaks: detach (it keeps running, the default) or kill"}}}"#,
        destructive: true,
        open_world: true,
        becomes: ToolCallKind::Task(Tool::Shell),
        ..CONTROL
    },
    ToolSpec {
        name: "task_list",
        title: "List tasks",
        description: "Lists the tasks that this session may see, newest first.",
        arguments: r#"{"type":"object","additionalProperties":false,"properties":{
            "status":{"type":"string","enum":["queued","running","exited","cancelled","failed"]},
            "limit":{"type":"integer","minimum":1,"maximum":100},
            "cursor":{"type":"string","description":"`next` of the previous page"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_status",
        title: "Show a task",
        description: "Shows whether a task waits, runs or has ended, and its outcome.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_wait",
        title: "Wait for a task",
        description: "Waits until a task has ended or wait_s seconds have passed. Also works for a task that waits for approval.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600,"description":"How many seconds to wait; 50 by default"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_output",
        title: "Read output",
        description: "Reads the output of a task by byte offset, by line, or from the end, while it runs or afterwards.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "stream":{"type":"string","enum":["stdout","stderr","pty"],"description":"stdout by default; pty for a task with a terminal"},
            "offset":{"type":"integer","minimum":0,"description":"The first byte to read"},
            "max_bytes":{"type":"integer","minimum":1,"maximum":65536},
            "line":{"type":"integer","minimum":1,"description":"The first line to read, from 1; with `lines`"},
            "lines":{"type":"integer","minimum":1,"maximum":2000,"description":"How many lines to read"},
            "tail":{"type":"integer","minimum":1,"maximum":2000,"description":"How many of the last lines to read"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_search",
        title: "Search output",
        description: "Searches the output of a task and returns the matching lines with their positions, page by page.",
        arguments: r#"{"type":"object","required":["task_id","pattern"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "pattern":{"type":"string"},
            "regex":{"type":"boolean"},
            "ignore_case":{"type":"boolean"},
            "stream":{"type":"string","enum":["stdout","stderr","pty"]},
            "context":{"type":"integer","minimum":0,"maximum":20},
            "max_results":{"type":"integer","minimum":1,"maximum":200},
            "after":{"type":"string","description":"`next` of the previous page"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "task_input",
        title: "Type into a task",
        description: "Sends text or keys to a task with open standard input or a terminal.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "text":{"type":"string"},
            "keys":{"type":"array","items":{"type":"string"},"description":"Keys by name, such as enter, ctrl-c or up; only for a terminal"},
            "eof":{"type":"boolean","description":"Close standard input"}}}"#,
        ..CONTROL
    },
    ToolSpec {
        name: "task_resize",
        title: "Resize a terminal",
        description: "Changes the size of a task's terminal.",
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
        description: "Withdraws a waiting task, or stops a running one with all processes that it started.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{
            "task_id":{"type":"string"},
            "reason":{"type":"string"}}}"#,
        destructive: true,
        ..CONTROL
    },
    ToolSpec {
        name: "set_working_directory",
        title: "Set the working directory",
        description: "Sets the directory for later commands without a cwd. A directory outside the workspace roots of this session needs approval.",
        arguments: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Absolute path of the directory"},
            "wait_s":{"type":"integer","minimum":0,"maximum":3600}}}"#,
        becomes: ToolCallKind::SessionTask(Tool::SetWorkingDirectory),
        ..CONTROL
    },
    ToolSpec {
        name: "receipt_get",
        title: "Get a receipt",
        description: "Returns the signed receipt of a task that has ended: the request, who allowed it, what ran, and the outcome.",
        arguments: r#"{"type":"object","required":["task_id"],"additionalProperties":false,"properties":{"task_id":{"type":"string"}}}"#,
        ..READS
    },
    ToolSpec {
        name: "read_file",
        title: "Read a file",
        description: "Reads a file, or some of its lines, with secrets redacted.",
        arguments: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Relative to cwd, or absolute"},
            "cwd":{"type":"string","description":"Absolute path of the directory to run in; the session's directory by default"},
            "first_line":{"type":"integer","minimum":1,"description":"The first line to read, from 1"},
            "line_count":{"type":"integer","minimum":1,"description":"How many lines to read"}}}"#,
        read_only: true,
        becomes: ToolCallKind::Task(Tool::ReadFile),
        ..FILE
    },
    ToolSpec {
        name: "write_file",
        title: "Write a file",
        description: "Writes a file with exactly this content.",
        arguments: r#"{"type":"object","required":["path","content"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Relative to cwd, or absolute"},
            "cwd":{"type":"string","description":"Absolute path of the directory to run in; the session's directory by default"},
            "content":{"type":"string","description":"The whole content of the file"}}}"#,
        destructive: true,
        becomes: ToolCallKind::Task(Tool::WriteFile),
        ..FILE
    },
    ToolSpec {
        name: "edit_file",
        title: "Edit a file",
        description: "Replaces text in a file. `old` must match the text as read_file shows it.",
        arguments: r#"{"type":"object","required":["path","old","new"],"additionalProperties":false,"properties":{
            "path":{"type":"string","description":"Relative to cwd, or absolute"},
            "cwd":{"type":"string","description":"Absolute path of the directory to run in; the session's directory by default"},
            "old":{"type":"string","minLength":1,"description":"The text to replace"},
            "new":{"type":"string","description":"The new text"},
            "all":{"type":"boolean","description":"Replace every occurrence; by default `old` must occur exactly once"}}}"#,
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
    /// The JSON Schema of its arguments.
    #[must_use]
    pub fn schema(&self) -> &'static Value {
        &SCHEMAS[self.name]
    }

    /// Refuses a call with an unknown argument or without a required one.
    pub fn check_arguments(&self, arguments: &Map<String, Value>) -> Result<(), Refusal> {
        let schema = self.schema();
        if let Some(name) = arguments.keys().find(|name| schema["properties"].get(name.as_str()).is_none()) {
            let shown = DisplaySafe::bounded(name, 40);
            return Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` has no argument `{shown}`", self.name)));
        }
        let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        match required.find(|name| !arguments.contains_key(*name)) {
            Some(name) => {
                Err(Refusal::new(RefusalCode::BadRequest, format!("`{}` needs the argument `{name}`", self.name)))
            }
            None => Ok(()),
        }
    }
}

#[must_use]
pub fn find_tool(name: &str) -> Option<&'static ToolSpec> {
    ALL.iter().find(|spec| spec.name == name)
}

/// The tools that MCP clients get, in order.
pub fn offered_by_mcp() -> impl Iterator<Item = &'static ToolSpec> {
    ALL.iter().filter(|spec| spec.mcp)
}

/// The tools that `POST /tasks` accepts, in order.
pub fn requestable() -> impl Iterator<Item = Tool> {
    ALL.iter().filter_map(|spec| match spec.becomes {
        ToolCallKind::Task(tool) => Some(tool),
        ToolCallKind::SessionTask(_) | ToolCallKind::Nothing => None,
    })
}

/// Refuses a tool that grants may name but requests may not.
pub fn check_requestable(tool: Tool) -> Result<(), Refusal> {
    if requestable().any(|known| known == tool) {
        return Ok(());
    }
    Err(Refusal::new(
        RefusalCode::Unsupported,
        format!("a request cannot name the tool `{}`: {}", tool.as_str(), use_one_of()),
    ))
}

fn use_one_of() -> String {
    let names: Vec<&str> = requestable().map(Tool::as_str).collect();
    format!("use one of {}", names.join(", "))
}

/// Reads every tool that a record or a grant may name. The error for an unknown name lists the tools that a request may
/// name.
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
    fn mcp_clients_get_the_tools_of_the_contract_in_order() {
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
    fn every_row_has_a_closed_schema_and_consistent_hints() {
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
        assert_eq!(names.len(), ALL.len(), "two tools have the same name");
        assert!(ALL.iter().all(|spec| find_tool(spec.name).is_some_and(|found| std::ptr::eq(found, spec))));
    }

    #[test]
    fn only_tools_that_run_can_be_requested() {
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
            "a request cannot name the tool `git_log`: use one of shell, read_file, write_file, edit_file"
        );
    }

    #[test]
    fn an_unknown_tool_is_refused_with_the_list_of_requestable_ones() {
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
    fn every_tool_keeps_its_stored_name() {
        for tool in Tool::ALL {
            let written = serde_json::to_string(&tool).unwrap();
            assert_eq!(written, format!("\"{}\"", tool.as_str()));
            assert_eq!(serde_json::from_str::<Tool>(&written).unwrap(), tool);
            assert_eq!(serde_json::from_value::<Tool>(Value::from(tool.as_str())).unwrap(), tool);
        }
    }

    #[test]
    fn unknown_and_missing_arguments_are_refused() {
        let check = |tool: &str, arguments: Value| {
            let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
            find_tool(tool).unwrap().check_arguments(&arguments).map_err(|refusal| refusal.message)
        };
        assert_eq!(check("run", serde_json::json!({"command": "ls"})), Ok(()));
        assert_eq!(
            check("run", serde_json::json!({"command": "ls", "x": 1})),
            Err("`run` has no argument `x`".to_owned())
        );
        assert_eq!(check("run", serde_json::json!({})), Err("`run` needs the argument `command`".to_owned()));
        assert_eq!(check("task_list", serde_json::json!({})), Ok(()));
    }
}
