//! Words that are not verbs of `csn` but that a user may try, and what to type instead.

/// A purpose, and the command line for it.
type Suggestion = (&'static str, &'static str);

/// What to type instead of `word` below the verbs of `path`.
pub(super) fn suggestions(path: &str, word: &str) -> &'static [Suggestion] {
    match (path, word) {
        ("", "list" | "ls" | "tasks" | "jobs" | "top") => &[("To list tasks", "csn ps")],
        ("", "start") => &[("To start a task", "csn run 'git status'"), ("To start the daemon", "csn up --detach")],
        ("", "stop") => &[("To stop a task", "csn cancel TASK"), ("To stop the daemon", "csn down")],
        ("", "restart") => &[("To restart the daemon", "csn down && csn up --detach")],
        ("", "kill" | "abort" | "terminate" | "rm") => {
            &[("To stop a task", "csn cancel TASK"), ("To send it a signal", "csn signal TASK KILL")]
        }
        ("", "status" | "info" | "health") => {
            &[("To list tasks", "csn ps"), ("To check the daemon", "csn doctor"), ("To see one task", "csn show TASK")]
        }
        ("", "log" | "output" | "tail") => &[("To print the output of a task", "csn logs TASK")],
        ("", "watch" | "follow") => {
            &[("To watch a task", "csn logs --follow TASK"), ("To watch for approvals", "csn approvals watch")]
        }
        ("", "history") => &[("To list finished tasks", "csn ps --all"), ("To list receipts", "csn receipts list")],
        ("", "approve" | "accept" | "yes" | "answer") => {
            &[("To approve a call", "csn approvals answer APPROVAL once"), ("To list approvals", "csn approvals")]
        }
        ("", "deny" | "reject" | "refuse" | "no") => {
            &[("To deny a call", "csn approvals answer APPROVAL deny"), ("To list approvals", "csn approvals")]
        }
        ("", "pending" | "inbox" | "questions" | "requests") => &[("To list approvals", "csn approvals")],
        ("", "allow" | "grant" | "permit" | "trust") => {
            &[("To approve a command in advance", "csn grants add 'cargo test in /srv/a'")]
        }
        ("", "revoke") => &[
            ("To revoke a grant", "csn grants revoke 'cargo test in /srv/a'"),
            ("To revoke a token", "csn token revoke NAME"),
        ],
        ("", "version") => &[("To print the version", "csn --version")],
        ("", "daemon" | "serve" | "server") => &[("To start the daemon", "csn up --detach")],
        ("", "setup" | "init" | "connect" | "agent" | "agents") => {
            &[("To connect an agent", "csn install claude-code")]
        }
        ("", "uninstall" | "remove") => &[
            ("To disconnect an agent", "csn install claude-code --uninstall"),
            ("To remove the service", "csn service uninstall"),
        ],
        ("", "config" | "rules" | "explain") => &[
            ("To explain a decision", "csn check 'git push'"),
            ("To explain a program", "csn policy explain git push"),
            ("To test the rules in config.toml", "csn policy test"),
        ],
        ("", "audit" | "receipt" | "records") => {
            &[("To list receipts", "csn receipts list"), ("To verify them", "csn verify")]
        }
        ("", "type" | "input" | "write") => &[("To send text to a task", "csn send TASK 'text' --enter")],
        ("", "screen") => &[("To print the screen of a task", "csn show TASK --screen")],
        ("", "shell" | "bash" | "terminal") => &[("To run a shell as a task", "csn run --pty -- bash")],
        ("", "clean" | "cleanup" | "prune") => &[("To remove old output", "csn gc --dry-run")],
        ("", "tokens") => &[("To list tokens", "csn token list")],
        ("approvals", "approve" | "accept" | "allow" | "yes" | "once") => {
            &[("To approve a call", "csn approvals answer APPROVAL once")]
        }
        ("approvals", "deny" | "reject" | "refuse" | "no") => {
            &[("To deny a call", "csn approvals answer APPROVAL deny")]
        }
        ("grants", "remove" | "delete" | "rm") => &[("To revoke a grant", "csn grants revoke 'cargo test in /srv/a'")],
        ("grants", "create" | "new" | "allow") => &[("To add a grant", "csn grants add 'cargo test in /srv/a'")],
        ("sessions", "close" | "stop" | "delete" | "rm") => &[("To end a session", "csn sessions end SESSION")],
        ("sessions", "new" | "start" | "create") => &[("To open a session", "csn sessions open")],
        ("token", "remove" | "delete" | "rm") => &[("To revoke a token", "csn token revoke NAME")],
        ("token", "new" | "add") => {
            &[("To create a token", "csn token create --person --name phone --scope observe,approve")]
        }
        ("service", "start" | "enable") => &[("To install and start the service", "csn service install")],
        ("service", "stop" | "remove" | "disable") => {
            &[("To stop the daemon", "csn down"), ("To remove the service", "csn service uninstall")]
        }
        ("file", "cat" | "show" | "print") => &[("To print a file", "csn file read FILE")],
        ("file", "create" | "new") => &[("To write a file", "csn file write FILE < DRAFT")],
        ("keys", "show" | "print") => &[("To print the public key", "csn keys export")],
        (_, "ls") => &[("To list", "use the verb `list`")],
        _ => &[],
    }
}
