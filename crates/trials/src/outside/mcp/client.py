"""The MCP client of the Python SDK, as an agent would use it: client.py WAY ERA ANSWERS CSN ADDRESS TOKEN DIRECTORY.

WAY is stdio or http; ERA is legacy (initialize) or auto (server/discover first); ANSWERS says what the person at this
client does: approve, decline, or none when the client has no elicitation at all. Whoever is at another terminal is on
the other side of the pipes: "ANSWER ID CHOICE" is written there, and a line comes back when it is done. They are not
here, since what this process starts is the agent's.
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
    """The client, with or without somebody who can be asked at it."""
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
    """What the tool says, and whether that is an error. The text must say the same: some agents show only that."""
    result = await client.call_tool(tool, arguments)
    said = result.structured_content or {}
    text = "".join(part.text for part in result.content if part.type == "text")
    if said.get("task_id"):
        assert said["task_id"] in text, f"{tool}: the text does not say what structuredContent does: {text!r}"
    return said, text, bool(result.is_error)


async def argument(client, tool, usual):
    """What a tool calls the one thing that it needs beside a task."""
    [found] = [each for each in (await client.list_tools()).tools if each.name == tool]
    needed = [name for name in found.input_schema.get("required", []) if name != "task_id"]
    return needed[0] if needed else usual


def at_another_terminal(approval, choice):
    print("ANSWER", approval, choice, flush=True)
    assert sys.stdin.readline().strip() == "done", "the other terminal failed"


async def question(client):
    """git push, which somebody must approve; whatever happens at this client, it must end."""
    asked.clear()
    pushed = pathlib.Path(DIRECTORY, "remote.git/refs/heads/main")
    said, text, _ = await call(client, "run", command="git push origin HEAD:main", cwd=DIRECTORY, wait_s=2)
    assert bool(asked) == (ANSWERS != "none"), f"asked through elicitation: {asked}"
    if asked:
        assert "git push" in asked[0].message, asked[0]
        options = asked[0].requested_schema["properties"]["decision"]
        assert "once" in str(options) and "deny" in str(options), options
    if ANSWERS != "approve":
        # A client that declines by itself is not the person: the question stays where it was.
        assert said["status"] == "queued" and said["approval_id"], (said, text)
        assert not pushed.exists(), "it ran, and nobody had answered"
        at_another_terminal(said["approval_id"], "once")
    ended, text, failed = await call(client, "task_wait", task_id=said["task_id"])
    assert not failed and ended["exit_code"] == 0, (ended, text)
    assert pushed.exists(), "it was approved and did not run"
    receipt, text, failed = await call(client, "receipt_get", task_id=said["task_id"])
    assert not failed and "git push" in text + str(receipt), (receipt, text)


async def plain(client):
    """What needs nobody: the tools, what only reads, what is denied, and where commands run."""
    tools = [tool.name for tool in (await client.list_tools()).tools]
    assert tools == TOOLS, tools
    assert tools == [tool.name for tool in (await client.list_tools()).tools], "another order"
    said, text, failed = await call(client, "run", command="cat greeting", cwd=DIRECTORY)
    assert not failed and said["exit_code"] == 0 and "hello" in str(said["output"]), (said, text)
    said, text, failed = await call(client, "run", command="mkdir made", cwd=DIRECTORY)
    assert failed and "made by people" in text, (said, text)
    assert not pathlib.Path(DIRECTORY, "made").exists(), "what was denied ran"
    if WAY == "stdio":
        where = {await argument(client, "set_working_directory", "path"): f"{DIRECTORY}/sub"}
        _, text, failed = await call(client, "set_working_directory", **where)
        assert not failed, text
        said, text, failed = await call(client, "run", command="cat here")
        assert not failed and "deep" in str(said["output"]), (said, text)


async def background(client):
    """A task that goes on: its output, a search in it, what is typed into it, and its end; also of one that has none."""
    listener = {"command": "cat", "cwd": DIRECTORY, "background": True, "pty": True, "rationale": "to type into it"}
    said, text, failed = await call(client, "run", **listener)
    assert not failed, text
    if said.get("approval_id"):
        at_another_terminal(said["approval_id"], "once")
    task = said["task_id"]
    await call(client, "task_input", task_id=task, text="needle in the hay\n")
    for _ in range(200):
        said, text, failed = await call(client, "task_output", task_id=task)
        if "needle" in text + str(said):
            break
        await asyncio.sleep(0.05)
    else:
        raise AssertionError(f"what was typed is not in the output: {text}")
    what = {await argument(client, "task_search", "pattern"): "needle"}
    said, text, failed = await call(client, "task_search", task_id=task, **what)
    # The rest of the line: what was looked for may be repeated in any answer.
    assert not failed and "in the hay" in text, (said, text)
    return task


async def main():
    async with connected() as client:
        assert client.server_info.name == "countersign", client.server_info
        await plain(client)
        await question(client)
        task = await background(client)
    # Whoever comes back finds the task as it was: that the connection ended was not its end.
    async with connected() as client:
        said, text, failed = await call(client, "task_status", task_id=task)
        assert not failed and said["status"] == "running", (said, text)
        said, text, _ = await call(client, "task_list")
        assert task in text, text
        await call(client, "task_cancel", task_id=task)
        said, text, _ = await call(client, "task_wait", task_id=task)
        assert said["status"] != "running", (said, text)
    print("ok", flush=True)


asyncio.run(asyncio.wait_for(main(), 180))
