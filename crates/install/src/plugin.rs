//! The plugin that opencode loads: it runs `csn hook opencode` before each command, and denies the command if the hook does
//! not answer. Its text is stored in users' configurations and is compared byte by byte, so it is changed only on purpose.

use super::entry::FILE_MARKER;

const PLUGIN_BODY: &str = r#"import { spawn } from "node:child_process"

const CSN = @CSN@
const ARGS = @ARGS@
const TIMEOUT_MS = 600000
const MAX_BYTES = 4 * 1024 * 1024

function ask(event) {
  return new Promise((resolve, reject) => {
    const child = spawn(CSN, ARGS, { stdio: ["pipe", "pipe", "pipe"] })
    let out = "", err = ""
    const fail = (why) => {
      clearTimeout(timer)
      child.kill("SIGKILL")
      reject(new Error("countersign: " + why + "; the command was not run"))
    }
    const timer = setTimeout(() => fail("no answer in time"), TIMEOUT_MS)
    child.on("error", (error) => fail(String(error)))
    child.stdin.on("error", () => {})
    child.stdout.setEncoding("utf8").on("data", (chunk) => {
      out += chunk
      if (out.length > MAX_BYTES) fail("too long an answer")
    })
    child.stderr.setEncoding("utf8").on("data", (chunk) => { err = (err + chunk).slice(-2000) })
    child.on("close", (code) => {
      clearTimeout(timer)
      if (code !== 0) return fail("csn hook ended with " + code + " " + err.trim())
      try { resolve(JSON.parse(out)) } catch { fail("csn hook gave no JSON") }
    })
    child.stdin.end(JSON.stringify(event))
  })
}

export const Countersign = async ({ directory }) => {
  const event = (name, input, args) => ({
    session_id: input.sessionID,
    cwd: args?.workdir ?? directory,
    hook_event_name: name,
    tool_name: input.tool,
    tool_input: { ...args },
    tool_use_id: input.callID,
  })
  return {
    "tool.execute.before": async (input, output) => {
      if (input.tool !== "bash") return
      const answer = await ask(event("PreToolUse", input, output.args))
      if (answer?.decision === "allow") return
      if (answer?.decision === "rewrite" && typeof answer.tool_input?.command === "string") {
        Object.assign(output.args, answer.tool_input)
        return
      }
      if (answer?.decision === "deny") throw new Error(answer.reason || "countersign: denied")
      throw new Error("countersign: csn hook gave no decision; the command was not run")
    },
@AFTER@  }
}
"#;

const AFTER_HANDLER: &str = r#"    "tool.execute.after": async (input, output) => {
      if (input.tool !== "bash") return
      const seen = { stdout: output.output, metadata: output.metadata }
      // What has run has run: that it could not be written down is no reason to fail it.
      await ask({ ...event("PostToolUse", input, input.args), tool_response: seen }).catch(() => {})
    },
"#;

pub(super) fn plugin_source(csn: &str, witness: bool) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let args = if witness { r#"["hook", "opencode", "--witness"]"# } else { r#"["hook", "opencode"]"# };
    let body = PLUGIN_BODY.replace("@AFTER@", if witness { AFTER_HANDLER } else { "" }).replace("@ARGS@", args);
    format!("{FILE_MARKER}{}", body.replace("@CSN@", &quoted(csn)))
}
