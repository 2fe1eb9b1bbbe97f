"""Creates the objects that the API tests use (`seed`), and checks afterwards that nothing else ran (`check`).

Arguments: `seed` or `check`, the address, the token, the directory of a project; for `check` also what `seed` printed.
"""

import json
import sys

import requests

WORD, ADDRESS, TOKEN, PROJECT = sys.argv[1:5]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def get(path, **query):
    answer = requests.get(ADDRESS + path, headers=HEADERS, params=query, timeout=20)
    answer.raise_for_status()
    return answer.json()


def post(path, body):
    answer = requests.post(ADDRESS + path, headers=HEADERS, json=body, timeout=20)
    answer.raise_for_status()
    return answer.json()


def ask(command, stdin=False, **options):
    args = {"command": command, "cwd": PROJECT, "stdin": stdin}
    return post("/tasks", {"tool": "shell", "args": args, **options})["task_id"]


def seed():
    ended = [ask("cat greeting", wait_ms=10000), ask("ls; false", wait_ms=10000)]
    for task in ended:
        # Waits until the receipt is sealed, so that the receipt and the streams that it covers exist.
        requests.get(f"{ADDRESS}/tasks/{task}/receipt", headers=HEADERS, params={"wait_ms": 10000}, timeout=20)
    def live(**options):
        return ask("cat", profile="full_auto", background=True, **options)

    running = [live(stdin=True), live(execution_mode="pty")]
    # Tests stop only these tasks, so that the others keep running.
    to_stop = [live(stdin=True) for _ in range(4)]
    to_type = [live(stdin=True) for _ in range(4)]
    waiting = [ask(f"touch made-{n}", background=True) for n in range(3)]
    session = post("/sessions", {"directory": PROJECT, "title": "seeded"})["id"]
    grant = post("/grants", {"verb": "cargo test", "directory": PROJECT})["id"]
    return {
        "/tasks/{id}/cancel": to_stop[:2] + ended,
        "/tasks/{id}/signal": to_stop[2:] + ended,
        "/tasks/{id}/resize": running[1:],
        "/tasks/{id}/screen": running[1:] + ended,
        "/tasks/{id}/stdin": to_type,
        "/tasks/": running + ended + waiting,
        "/approvals/": [get(f"/tasks/{task}")["approval_id"] for task in waiting],
        "/sessions/": [session],
        "/grants/": [grant],
        "/artifacts/": [s["sha256"] for task in ended for s in get(f"/tasks/{task}")["streams"].values()],
    }


def check(seeded):
    """Fails if any task ran that was not seeded."""
    cursor, seen, ran = {}, 0, []
    while True:
        page = get("/tasks", limit=500, **cursor)
        seen += len(page["tasks"])
        ran += [t["task_id"] for t in page["tasks"] if t.get("launched_at") and t["task_id"] not in seeded]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    if ran:
        sys.exit(f"these tasks ran: {' '.join(ran)}")
    print(f"{seen} tasks were requested; none of the generated ones ran")


if WORD == "seed":
    print(json.dumps(seed()))
else:
    check({task for ids in json.loads(sys.argv[5]).values() for task in ids})
