"""The MCP client of the Python SDK, used as an agent would: client.py WAY ERA ANSWERS CSN ADDRESS TOKEN DIRECTORY.

WAY is stdio or http; ERA is legacy (initialize) or auto (server/discover first); ANSWERS is what the user of this
client does: approve, decline, or none if the client has no elicitation. The process at the other end of the pipes
answers as the user at another terminal: this script writes "ANSWER ID CHOICE" and reads a line when that is done. It
cannot answer itself, since every process that it starts belongs to the agent.
"""

import asyncio
import contextlib
import os
import pathlib
import sys

import httpx2
import mcp.types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

WAY, ERA, ANSWERS, CSN, ADDRESS, TOKEN, DIRECTORY = sys.argv[1:]
TOOLS = """run task_list task_status task_wait task_output task_search task_input task_resize task_signal task_cancel
set_working_directory receipt_get""".split()
asked = []


async def elicited(_context, params):
    asked.append(params)
    if ANSWERS == "decline":
        return types.ElicitResult(action="decline")
    return types.ElicitResult(action="accept", content={"decision": "once"})


@contextlib.asynccontextmanager
async def connected():
    """The client, with or without elicitation."""
    callback = None if ANSWERS == "none" else elicited
    async with contextlib.AsyncExitStack() as stack:
        if WAY == "stdio":
            server = StdioServerParameters(command=CSN, args=["mcp"], env=dict(os.environ), cwd=DIRECTORY)
        else:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=120))
            server = streamable_http_client(f"{ADDRESS}/mcp", http_client=http)
        options = {"mode": ERA, "elicitation_callback": callback, "read_timeout_seconds": 60}
        yield await stack.enter_async_context(Client(server, **options))


async def call(client, tool, **arguments):
    """The structured content and the text of a result, and whether it is an error. Some agents show only the text."""
    result = await client.call_tool(tool, arguments)
    content = result.structured_content or {}
    text = "".join(part.text for part in result.content if part.type == "text")
    if content.get("task_id"):
        assert content["task_id"] in text, f"{tool}: the text lacks the task id of structuredContent: {text!r}"
    return content, text, bool(result.is_error)


async def argument(client, tool, usual):
    """The name of the one argument that a tool needs besides a task."""
    [found] = [each for each in (await client.list_tools()).tools if each.name == tool]
    needed = [name for name in found.input_schema.get("required", []) if name != "task_id"]
    return needed[0] if needed else usual


def at_another_terminal(approval, choice):
    print("ANSWER", approval, choice, flush=True)
    assert sys.stdin.readline().strip() == "done", "the other terminal failed"


async def check_approval(client):
    """git push, which needs approval; it must end, whatever this client does."""
    asked.clear()
    pushed = pathlib.Path(DIRECTORY, "remote.git/refs/heads/main")
    content, text, _ = await call(client, "run", command="git push origin HEAD:main", cwd=DIRECTORY, wait_s=2)
    assert bool(asked) == (ANSWERS != "none"), f"asked through elicitation: {asked}"
    if asked:
        assert "git push" in asked[0].message, asked[0]
        options = asked[0].requested_schema["properties"]["decision"]
        assert "once" in str(options) and "deny" in str(options), options
    if ANSWERS != "approve":
        # A client that declines on its own is not the user: the approval stays pending.
        assert content["status"] == "queued" and content["approval_id"], (content, text)
        assert not pushed.exists(), "it ran before the approval was answered"
        at_another_terminal(content["approval_id"], "once")
    ended, text, failed = await call(client, "task_wait", task_id=content["task_id"])
    assert not failed and ended["exit_code"] == 0, (ended, text)
    assert pushed.exists(), "it was approved, but did not run"
    receipt, text, failed = await call(client, "receipt_get", task_id=content["task_id"])
    assert not failed and "git push" in text + str(receipt), (receipt, text)


async def check_without_approval(client):
    """What needs no approval: the tools, a read-only command, a denied command, and the working directory."""
    tools = [tool.name for tool in (await client.list_tools()).tools]
    assert tools == TOOLS, tools
    assert tools == [tool.name for tool in (await client.list_tools()).tools], "the order of the tools changed"
    content, text, failed = await call(client, "run", command="cat greeting", cwd=DIRECTORY)
    assert not failed and content["exit_code"] == 0 and "hello" in str(content["output"]), (content, text)
    content, text, failed = await call(client, "run", command="mkdir made", cwd=DIRECTORY)
    assert failed and "made by people" in text, (content, text)
    assert not pathlib.Path(DIRECTORY, "made").exists(), "the denied command ran"
    if WAY == "stdio":
        where = {await argument(client, "set_working_directory", "path"): f"{DIRECTORY}/sub"}
        _, text, failed = await call(client, "set_working_directory", **where)
        assert not failed, text
        content, text, failed = await call(client, "run", command="cat here")
        assert not failed and "deep" in str(content["output"]), (content, text)


async def check_background(client):
    """A task that keeps running: its output, a search in it, and its input."""
    listener = {"command": "cat", "cwd": DIRECTORY, "background": True, "pty": True, "rationale": "to type into it"}
    content, text, failed = await call(client, "run", **listener)
    assert not failed, text
    if content.get("approval_id"):
        at_another_terminal(content["approval_id"], "once")
    task = content["task_id"]
    await call(client, "task_input", task_id=task, text="needle in the hay\n")
    for _ in range(200):
        content, text, failed = await call(client, "task_output", task_id=task)
        if "needle" in text + str(content):
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError(f"the input is not in the output: {text}")
    what = {await argument(client, "task_search", "pattern"): "needle"}
    content, text, failed = await call(client, "task_search", task_id=task, **what)
    # Checks the rest of the line, since any answer may repeat the search text.
    assert not failed and "in the hay" in text, (content, text)
    return task


async def main():
    async with connected() as client:
        assert client.server_info.name == "countersign", client.server_info
        await check_without_approval(client)
        await check_approval(client)
        task = await check_background(client)
    # After a reconnect the task still runs: the end of the connection did not end it.
    async with connected() as client:
        content, text, failed = await call(client, "task_status", task_id=task)
        assert not failed and content["status"] == "running", (content, text)
        content, text, _ = await call(client, "task_list")
        assert task in text, text
        await call(client, "task_cancel", task_id=task)
        content, text, _ = await call(client, "task_wait", task_id=task)
        assert content["status"] != "running", (content, text)
    print("ok", flush=True)


asyncio.run(asyncio.wait_for(main(), 180))
