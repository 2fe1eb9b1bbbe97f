"""A scripted model on 127.0.0.1: it takes the steps in STEPS, whatever the request.

model.py DIR: reads DIR/steps.json, a list of {"tool": NAME, "input": {...}} and {"text": "..."}; writes its port into
DIR/port once it listens, and every request into DIR/requests/NNN.json as {"path", "headers", "body"}.

It is stateless: the step is the number of tool results in the conversation, so a repeated request gets the same
answer. "{{task_id}}" in an input is the last task id in a result.
"""

import http.server
import itertools
import json
import pathlib
import re
import sys
import threading

DIR = pathlib.Path(sys.argv[1])
STEPS = json.loads((DIR / "steps.json").read_text())
REQUESTS = DIR / "requests"
NUMBER, LOCK = itertools.count(1), threading.Lock()
USAGE = {"input_tokens": 10, "output_tokens": 10}


def results(body):
    """The texts of all tool results, in order, in either dialect."""
    found = []
    for message in body.get("messages", []):
        content = message.get("content")
        for part in content if isinstance(content, list) else []:
            if part.get("type") == "tool_result":
                found.append(json.dumps(part.get("content")))
    given = body.get("input")
    for item in given if isinstance(given, list) else []:
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            found.append(json.dumps(item.get("output")))
    return found


def offered(body):
    """The names of the tools that the agent offers."""
    names = []
    for tool in body.get("tools") or []:
        names.append(tool.get("name"))
        # Codex offers the tools of an MCP server as one namespace.
        names += [inner.get("name") for inner in tool.get("tools") or []]
    return names


def step(body):
    """The next step. Agents also request titles and summaries, without tools: those get a short text."""
    seen = results(body)
    if not offered(body):
        return {"text": "A title"}
    if len(seen) >= len(STEPS):
        return {"text": "The script has ended."}
    now = json.dumps(STEPS[len(seen)])
    tasks = re.findall(r'task_id\\*"\s*:\s*\\*"([^"\\]+)', " ".join(seen))
    return json.loads(now.replace("{{task_id}}", tasks[-1] if tasks else "none"))


def anthropic(body):
    """One message as the events of /v1/messages."""
    now, number = step(body), len(results(body))
    if "tool" in now:
        block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": now["tool"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(now["input"])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": now["text"]}
    reason = "tool_use" if "tool" in now else "end_turn"
    message = {
        "id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": body.get("model", "scripted"),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE,
    }
    if not body.get("stream"):
        whole = {**block, "input": now["input"]} if "tool" in now else {"type": "text", "text": now["text"]}
        return {**message, "content": [whole], "stop_reason": reason}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": USAGE},
        {"type": "message_stop"},
    ]


def responses(body):
    """One response as the events of /v1/responses."""
    now, number = step(body), len(results(body))
    if "tool" in now:
        item = {"type": "function_call", "id": f"fc_{number:04}", "call_id": f"call_{number:04}"}
        item |= {"name": now["tool"], "arguments": json.dumps(now["input"]), "status": "completed"}
        if "namespace" in now:
            item["namespace"] = now["namespace"]
    else:
        item = {"type": "message", "id": f"msg_{number:04}", "role": "assistant", "status": "completed"}
        item["content"] = [{"type": "output_text", "text": now["text"], "annotations": []}]
    usage = {**USAGE, "total_tokens": 20}
    response = {"id": f"resp_{number:04}", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, kind, data, status=200):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def json(self, value, status=200):
        self.answer("application/json", json.dumps(value).encode(), status)

    def do_GET(self):
        self.json({"data": [], "models": [], "object": "list", "has_more": False})

    def do_HEAD(self):
        self.answer("text/plain", b"")

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            return self.json({"error": {"type": "invalid_request_error", "message": "not JSON"}}, 400)
        kept = {"path": self.path, "headers": dict(self.headers), "body": body}
        with LOCK:
            name = f"{next(NUMBER):03}.json"
        # Renamed into place, so that a reader never sees half of a request.
        (REQUESTS / f".{name}").write_text(json.dumps(kept))
        (REQUESTS / f".{name}").rename(REQUESTS / name)
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return self.json({"input_tokens": 10})
        if path.endswith("/messages"):
            said = anthropic(body)
        elif path.endswith("/responses"):
            said = responses(body)
        else:
            # Telemetry and similar requests.
            return self.json({})
        if not isinstance(said, list):
            return self.json(said)
        events = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in said)
        self.answer("text/event-stream", events.encode())

    def log_message(self, *_):
        pass


REQUESTS.mkdir(parents=True, exist_ok=True)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
(DIR / ".port").write_text(str(server.server_port))
(DIR / ".port").rename(DIR / "port")
server.serve_forever()
