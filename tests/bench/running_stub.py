"""What stands for replicas and a trainer in ``running.py``: ``python -I -S running_stub.py replica PORT METRICS`` and
``... trainer TRIALS SECONDS RUN_DIR``. Simulated: a replica computes nothing and answers from a recording; the trainer
writes what agents of so many trials would, one turn of each every SECONDS."""

import os
import sys
import time

MODE, *ARGS = sys.argv[1:]
STEP = 8  # that the trials are of


def replica(port: int, recorded: str) -> None:
    """An HTTP server that answers every request with a recording of vLLM's ``/metrics`` in which the tokens grow."""
    import selectors
    import socket

    with open(recorded, encoding="utf-8") as file:
        text = file.read()
    text += f'liverl:policy_version {STEP - 1}.0\nliverl:policy_info{{digest="d{STEP - 1}"}} 1.0\n'
    parts = text.split("@TOKENS@")
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ)
    began = time.monotonic()
    print("listening", flush=True)
    while True:
        for key, _ in chosen.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                chosen.register(connection, selectors.EVENT_READ)
                continue
            connection = key.fileobj
            asked = connection.recv(1 << 16)
            if not asked:
                chosen.unregister(connection)
                connection.close()
                continue
            tokens = f"{1000 * (time.monotonic() - began):.1f}"
            body = tokens.join(parts).encode() if asked.startswith(b"GET /metrics") else b""
            head = f"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\n"
            connection.sendall(f"{head}content-type: text/plain; version=1.0.0\r\n\r\n".encode() + body)


def trainer(trials: int, seconds: float, run_dir: str) -> None:
    """``trials`` agents at once, each of which writes a turn every ``seconds``; ``trainer.json`` once a second."""
    import json

    def write(path: str, text: str, flags: int = os.O_TRUNC) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        os.write(fd, text.encode())
        os.close(fd)

    def report() -> None:
        told = {"pid": os.getpid(), "step": STEP - 1, "total_steps": 100, "policy_version": STEP - 1}
        told |= {"policy_digest": f"d{STEP - 1}", "phase": "rollout", "trials_done": 0}
        told |= {"trials_total": trials, "at": time.time()}
        write(f"{run_dir}/trainer.json.new", json.dumps(told))
        os.replace(f"{run_dir}/trainer.json.new", f"{run_dir}/trainer.json")

    folders = []
    for number in range(trials):
        folder = f"{run_dir}/trials/step_{STEP:04d}/fix-{number % 64:03d}-{number:08x}"
        os.makedirs(folder)
        facts = {"task": f"fix-{number % 64:03d}", "step": STEP, "group": f"{number % 64}", "kind": "tools"}
        write(f"{folder}/liverl.json", json.dumps(facts))
        folders.append(folder)
    print("Total training steps: 100", flush=True)
    began, turn, told = time.time(), 0, 0.0
    while True:
        number = turn % trials
        due = began + turn * seconds / trials
        while (now := time.time()) < due:
            time.sleep(min(0.05, due - now))
        if now - told >= 1:
            report()
            told = now
        say = {"role": "assistant", "content": "Let me look at the tests again.", "tool_calls": None}
        call = {
            "id": f"c{turn}",
            "type": "function",
            "function": {"name": "bash", "arguments": '{"cmd": "ls"}'},
        }
        say["tool_calls"] = [call]
        record = {
            "session_id": f"s{number}",
            "success": True,
            "request_time": round(now * 1000),
            "duration_ms": 700,
            "request_body": {
                "model": "policy",
                "messages": [
                    {"role": "user", "content": "a line of a tool's output, as long as most\n" * 64}
                ],
                "tools": [{"type": "function", "function": {"name": "bash"}}],
                "temperature": 1.0,
            },
            "response_body": {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": say}]},
            "usage": {"completion_tokens": 64},
            "failure": None,
            "replica": f"http://127.0.0.1:{4000 + number % 64}",
        }
        write(f"{folders[number]}/litellm-trajectory.jsonl", json.dumps(record) + "\n", os.O_APPEND)
        turn += 1


if MODE == "replica":
    replica(int(ARGS[0]), ARGS[1])
else:
    trainer(int(ARGS[0]), float(ARGS[1]), ARGS[2])
