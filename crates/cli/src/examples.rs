//! Examples of every verb, for help texts, manual pages and usage errors. A test parses each of them.

/// A command line, and what it does.
pub(crate) struct Example {
    pub(crate) line: &'static str,
    pub(crate) effect: &'static str,
}

const fn example(line: &'static str, effect: &'static str) -> Example {
    Example { line, effect }
}

/// The examples of `csn` itself.
pub(crate) const FIRST_STEPS: &[Example] = &[
    example("csn run 'git status'", "Run a command as a task"),
    example("csn install claude-code", "Connect an agent to Countersign"),
    example("csn approvals watch", "Answer approvals as they arrive"),
];

/// The examples of a verb, by its path: `run`, or `approvals answer`. The first one also ends usage errors.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn examples(path: &str) -> &'static [Example] {
    match path {
        "" => FIRST_STEPS,
        "run" => {
            const {
                &[
                    example("csn run 'git log --oneline | head'", "Run shell text with bash."),
                    example("csn run -- ls -la", "Run a program with its arguments, without a shell."),
                    example("csn run --pty -- vim notes.txt", "Run a program that needs a terminal."),
                    example("csn run --background --timeout 2h 'make test'", "Start a long task and print its ID."),
                ]
            }
        }
        "file" | "file read" => {
            const { &[example("csn file read app.conf", "Print a file; its secrets are redacted.")] }
        }
        "file write" => const { &[example("csn file write notes.txt < draft.txt", "Write a file.")] },
        "file edit" => {
            const { &[example("csn file edit app.conf --old 'port = 1' --new 'port = 2'", "Change one setting.")] }
        }
        "ps" => {
            const {
                &[
                    example("csn ps", "List the tasks that wait or run."),
                    example("csn ps --all --json", "List every task, for a program."),
                ]
            }
        }
        "show" => {
            const {
                &[
                    example("csn show tk_01m7", "Show a task."),
                    example("csn show tk_01m7 --screen", "Print what its terminal shows."),
                ]
            }
        }
        "logs" => {
            const {
                &[
                    example("csn logs tk_01m7 --tail 20", "Print the last 20 lines."),
                    example("csn logs tk_01m7 --follow", "Print the output until the task ends."),
                ]
            }
        }
        "attach" => const { &[example("csn attach tk_01m7", "Use the terminal of a task.")] },
        "send" => {
            const {
                &[
                    example("csn send tk_01m7 yes --enter", "Type a line."),
                    example("csn send tk_01m7 --keys ctrl-c", "Press Ctrl-C."),
                ]
            }
        }
        "resize" => const { &[example("csn resize tk_01m7 40 120", "Set 40 rows and 120 columns.")] },
        "search" => {
            const {
                &[
                    example("csn search tk_01m7 'error:'", "Find a text."),
                    example("csn search tk_01m7 -e -i 'warn(ing)?' -C 2", "Find a pattern, with two lines around it."),
                ]
            }
        }
        "replay" => {
            const {
                &[
                    example("csn replay tk_01m7 --max-pause 1", "Play a recording with short pauses."),
                    example("csn replay tk_01m7 --cast v2 demo.cast", "Save it for an asciicast player."),
                ]
            }
        }
        "cancel" => const { &[example("csn cancel tk_01m7 --reason 'wrong branch'", "Stop a task.")] },
        "signal" => const { &[example("csn signal tk_01m7 INT", "Interrupt a task.")] },
        "wait" => const { &[example("csn wait tk_01m7", "Wait for a background task.")] },
        "approvals" => {
            const {
                &[
                    example("csn approvals", "List the approvals that wait."),
                    example("csn approvals answer ap_01m7 once", "Approve one command, once."),
                    example("csn approvals watch", "Answer approvals as they arrive."),
                ]
            }
        }
        "approvals list" => const { &[example("csn approvals list", "List the approvals that wait.")] },
        "approvals show" => const { &[example("csn approvals show ap_01m7", "Show an approval and its answers.")] },
        "approvals answer" => {
            const {
                &[
                    example("csn approvals answer ap_01m7 once", "Approve this command only, once."),
                    example("csn approvals answer ap_01m7 here", "Approve it in this directory from now on."),
                    example("csn approvals answer ap_01m7 deny --words 'use staging'", "Deny it and say why."),
                ]
            }
        }
        "approvals watch" => const { &[example("csn approvals watch", "Answer approvals as they arrive.")] },
        "grants" => {
            const {
                &[
                    example("csn grants", "List all grants."),
                    example("csn grants add 'cargo test in /srv/a'", "Approve a command in one directory."),
                    example("csn grants revoke 'cargo test in /srv/a'", "Revoke that grant."),
                ]
            }
        }
        "grants list" => const { &[example("csn grants list", "List all grants.")] },
        "grants add" => {
            const {
                &[
                    example("csn grants add 'cargo test in /srv/a'", "Approve a command in one directory."),
                    example("csn grants add --verb 'cargo test' --in . --expires 8h", "Approve it here for 8 hours."),
                    example("csn grants add --verb 'git push' --anywhere --uses 3", "Approve three commands."),
                ]
            }
        }
        "grants narrow" => const { &[example("csn grants narrow --all", "Sandbox the commands of all grants.")] },
        "grants revoke" => {
            const { &[example("csn grants revoke 'cargo test in /srv/a'", "Revoke a grant by its label.")] }
        }
        "sessions" | "sessions list" => const { &[example("csn sessions list --all", "List every session.")] },
        "sessions open" => {
            const { &[example("csn sessions open --in ~/web --title 'fix the build'", "Open a session.")] }
        }
        "sessions show" => const { &[example("csn sessions show se_01m7", "Show a session.")] },
        "sessions cd" => const { &[example("csn sessions cd se_01m7 ~/other", "Work in another directory.")] },
        "sessions end" => const { &[example("csn sessions end se_01m7", "End a session.")] },
        "receipts" => {
            const {
                &[
                    example("csn receipts list -n 10", "List the newest 10 receipts."),
                    example("csn receipts show tk_01m7", "Show the receipt of a task."),
                ]
            }
        }
        "receipts list" => const { &[example("csn receipts list -n 10", "List the newest 10 receipts.")] },
        "receipts show" => const { &[example("csn receipts show tk_01m7", "Show the receipt of a task.")] },
        "receipts export" => {
            const { &[example("csn receipts export --from 1 -o receipts.jsonl", "Export the whole receipt chain.")] }
        }
        "receipts verify" => const { &[example("csn receipts verify tk_01m7", "Verify one task.")] },
        "receipts head" => {
            const { &[example("csn receipts head -o head.json", "Save a ledger head, to keep on another machine.")] }
        }
        "verify" => {
            const {
                &[
                    example("csn verify", "Verify everything in the home."),
                    example("csn verify tk_01m7.tar", "Verify an exported task, on any machine."),
                    example("csn verify --since head.json", "Also prove that no earlier record is missing."),
                ]
            }
        }
        "keys" | "keys list" => const { &[example("csn keys list", "List the signing keys.")] },
        "keys export" => const { &[example("csn keys export > countersign.pem", "Save the current public key.")] },
        "keys rotate" => const { &[example("csn keys rotate", "Replace the signing key.")] },
        "export" => const { &[example("csn export tk_01m7 -o build.tar", "Export a task.")] },
        "install" => {
            const {
                &[
                    example("csn install claude-code", "Connect Claude Code."),
                    example("csn install codex --dry-run", "Print what would change."),
                    example("csn install claude-code --uninstall", "Disconnect it again."),
                ]
            }
        }
        "service" => {
            const {
                &[
                    example("csn service install", "Install the daemon as a service of your user."),
                    example("csn service status", "Check whether it runs."),
                ]
            }
        }
        "service install" => {
            const {
                &[
                    example("csn service install", "Install the daemon as a service of your user."),
                    example("sudo csn service install --system", "Install the system service."),
                ]
            }
        }
        "service uninstall" => const { &[example("csn service uninstall", "Remove the service.")] },
        "service status" => const { &[example("csn service status", "Check whether the service runs.")] },
        "token" | "token create" => {
            const {
                &[example(
                    "csn token create --person --name phone --scope observe,approve",
                    "Create a token that can watch and approve.",
                )]
            }
        }
        "token list" => const { &[example("csn token list", "List all tokens.")] },
        "token revoke" => const { &[example("csn token revoke phone", "Revoke a token by its name.")] },
        "check" => {
            const {
                &[
                    example("csn check 'git push --force'", "Explain the decision about a command."),
                    example("csn check -- rm -rf build", "Check a program with its arguments."),
                    example("csn check --grant 'cargo test anywhere' 'cargo test'", "Check it with a grant."),
                ]
            }
        }
        "policy" | "policy explain" => const { &[example("csn policy explain git push", "Explain one subcommand.")] },
        "policy test" => const { &[example("csn policy test", "Test your rules after you edit config.toml.")] },
        "redact" => {
            const {
                &[
                    example("csn redact --report < build.log > clean.log", "Redact a log and list the matches."),
                    example("csn redact --rules", "List the rules."),
                ]
            }
        }
        "doctor" => const { &[example("csn doctor", "Check the installation.")] },
        "gc" => const { &[example("csn gc --older-than 30 --dry-run", "List output older than 30 days.")] },
        "hook" => const { &[example("csn install claude-code", "Let the agent call the hook.")] },
        "exec" => const { &[example("csn exec --ticket TICKET -- 'git push'", "Run a command with its ticket.")] },
        "mcp" => const { &[example("csn install codex --mode mcp", "Let the agent start the server.")] },
        "up" => {
            const {
                &[
                    example("csn up --detach", "Start the daemon in the background."),
                    example("csn up --tcp 127.0.0.1:7311", "Run it here and serve the HTTP API on this port."),
                ]
            }
        }
        "down" => {
            const {
                &[
                    example("csn down", "Stop the daemon; tasks keep running."),
                    example("csn down --stop-tasks", "Stop the tasks first."),
                ]
            }
        }
        "help" => const { &[example("csn help approvals answer", "Show the help of a verb.")] },
        "man" => {
            const {
                &[
                    example("csn man ~/.local/share/man/man1", "Write all pages, for your user."),
                    example("csn man | man -l -", "Read csn(1)."),
                ]
            }
        }
        "completions" => {
            const { &[example("csn completions bash > ~/.local/share/bash-completion/completions/csn", "For bash.")] }
        }
        _ => &[],
    }
}
