"""A toy backend for tests: a real process with the real control server and a handler that does little.

``python control_toy.py RUN_DIR [QUEUE_LIMIT]`` serves until it is told to finish. Loaded as a module it offers
``spawn`` and ``wait_until``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec


class Toy:
    def __init__(self, run_dir, queue_limit):
        from liverl.control.server import ControlServer
        from liverl.rundir.layout import RunDir

        self.run = RunDir(run_dir)
        self.server = ControlServer(run_dir, self, queue_limit=queue_limit)
        self.state = "running"
        self.started_at = time.time()
        self.attempt = int(os.environ.get("TOY_ATTEMPT", "1"))
        self.events = []
        with contextlib.suppress(OSError):
            from liverl.control.history import read_events

            self.events = list(read_events(run_dir))
        self.ended = asyncio.Event()
        self.hurry = asyncio.Event()
        self.stops = []

    def emit(self, text, **more):
        from liverl.model import Event

        seq = self.events[-1].seq + 1 if self.events else 1
        event = Event(seq, time.time(), more.pop("kind", "note"), text, **more)
        self.events.append(event)
        with self.run.events.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")
        self.server.publish(event)

    def snapshot(self):
        from liverl.model import BackendInfo, ServiceStatus, Snapshot, StepTrials, TrialsStatus

        service = ServiceStatus("proxy", "proxy", "ours", "ready", "serves", time.time(), 4242, 2, 1, None)
        other = ServiceStatus(
            "replica-0", "replica", "ours", "failed", "exit 3", time.time(), None, 1, 0, None
        )
        return Snapshot(
            seq=self.events[-1].seq if self.events else 0,
            at=time.time(),
            run=self.run.name,
            run_dir=str(self.run.path),
            state=self.state,
            phase="rollout",
            attempt=self.attempt,
            topology="managed",
            backend=BackendInfo(os.getpid(), self.started_at, "here", "0"),
            started_at=self.started_at,
            services=(service, other),
            step=7,
            total_steps=20,
            trials=TrialsStatus(64, 8, 56, 3, steps=(StepTrials(7, 64, 56, 3, 0.25),)),
        )

    def events_since(self, seq):
        return [e for e in self.events if e.seq > seq]

    async def command(self, name, args, client):
        from liverl.control.messages import CommandError

        if name == "emit":
            for i in range(args["count"]):
                self.emit("x" * args.get("size", 0) + str(i))
                if i % 100 == 99:
                    await asyncio.sleep(0)
            return {"emitted": args["count"]}
        if name == "slow":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(args["seconds"]):
                    await self.hurry.wait()
            if args.get("fail"):
                raise CommandError("failed", "slow has failed")
            return {"text": "slow is done"}
        if name == "hurry":  # ends what is slow
            self.hurry.set()
            return {}
        if name == "restart":
            if args["service"] not in ("proxy", "replica-0"):
                raise CommandError("unknown_service", f"no service {args['service']}", "proxy")
            return {"text": f"{args['service']} restarted for {client}"}
        if name == "break":
            raise RuntimeError("a bug in the handler")
        if name == "rss":
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            commands = len(self.server.commands) - 1  # that are under way beside this one
            return {"bytes": pages * 4096, "clients": self.server.clients, "commands": commands}
        if name == "state":
            self.state = args["state"]
            self.server.publish_snapshot()
            return {}
        if name == "stop":
            self.emit(f"stop now={args.get('now')} by {client}")
            self.stops.append(args)
            if os.environ.get("TOY_STUBBORN") and not args.get("now"):
                return {"text": "stopping"}
            self.finish("stopped", 5)
            return {"text": "stopped"}
        if name == "finish":
            self.finish(args["state"], args["exit_code"])
            return {}
        raise CommandError("unknown_command", f"no command {name}")

    def finish(self, state, code):
        from liverl.model import Result

        self.state = state
        result = Result(state, code, None, 7, self.started_at, time.time(), self.attempt, f"toy {state}")
        temporary = self.run.path / ".result"
        temporary.write_bytes(msgspec.json.encode(result))
        temporary.replace(self.run.result)
        self.emit(f"run {state}", kind="run")
        self.server.publish_snapshot()
        self.ended.set()

    async def main(self):
        from liverl.rundir import index, layout

        if self.attempt > 1:
            self.run.result.unlink(missing_ok=True)
        await self.server.start()
        layout.write_backend(self.run.path, layout.own_record(self.server.socket_path, "0"))
        index.register(self.run.path)
        self.emit(f"toy backend {os.getpid()} serves")
        await self.ended.wait()
        await self.server.close()
        index.unregister(self.run.path)


def wait_until(condition, what="", timeout=120.0):
    """Poll ``condition`` until it gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"timed out: {what or condition}"
        time.sleep(0.02)


def spawn(run_dir, queue_limit=1 << 20, **env):
    """Start a toy backend in its own session and wait until it answers. Returns the Popen."""
    from liverl.control.blocking import Connection
    from liverl.control.messages import ControlError

    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "plan.json").touch()
    with (run_dir / "backend.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(run_dir), str(queue_limit)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **env},
        )

    def answers():
        assert process.poll() is None, (run_dir / "backend.log").read_text()
        try:
            with Connection(run_dir) as connection:
                return connection.hello.pid == process.pid
        except ControlError:
            return False

    wait_until(answers, "toy backend answers")
    return process


def end(process):
    """Kill the process if it still runs, and reap it."""
    if process.poll() is None:
        process.kill()
    process.wait(60)


async def serve(run_dir, queue_limit):
    await Toy(run_dir, queue_limit).main()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20))
    print(json.dumps({"ended": True}))
