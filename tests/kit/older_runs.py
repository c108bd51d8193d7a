"""Run directories that earlier versions wrote (``tests/data/compat``), restored on this machine; see
``kit.record_runs`` for what is in them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.ports import free_port
from kit.runs import TOY, ToyRun
from kit.waiting import wait_until
from liverl.procs import procfs

DATA = Path(__file__).parents[1] / "data" / "compat"
VERSIONS = sorted(path for path in DATA.iterdir() if path.is_dir())  # by the date of their last commit
_PLACEHOLDER = re.compile(
    r"<(?:run_dir|python|toy|package|host|boot_id|era|cache|home|(?:pid|tick|port):[^<>]+)>"
)


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def dead_process() -> tuple[int, int]:
    """pid and start tick of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    tick = procfs.start_tick(process.pid)
    process.communicate(b"\n")
    assert tick is not None
    return process.pid, tick


class Restored:
    """A recorded run directory at ``folder/PROJECT/NAME``.

    ``package``: what stands for the place where the earlier version was installed. ``same_boot`` false: it was
    recorded before this machine started. ``processes``: those of its services that live, by the name of the
    placeholder; all others have ended.
    """

    def __init__(
        self,
        recorded: Path,
        folder: Path,
        *,
        package: str = "/of/an/earlier/version/liverl",
        same_boot: bool = True,
    ) -> None:
        self.recorded = recorded
        plan = json.loads((recorded / "plan.json").read_text())
        self.run_name: str = plan["run"]
        self.run_dir = folder / self.run_name
        self.run_dir.mkdir(parents=True)
        boot = boot_id() if same_boot else "0d0c5a8e-2a3b-4a9e-8f42-3f5d5a1f0c11"
        self._words = {
            "<run_dir>": str(self.run_dir),
            "<python>": sys.executable,
            "<toy>": str(TOY),
            "<package>": package,
            "<host>": os.uname().nodename,
            "<boot_id>": boot,
            "<era>": f"{boot} {os.readlink('/proc/self/ns/pid')}",
            "<cache>": str(folder / "cache"),
            "<home>": str(folder),
        }
        self.processes: dict[str, tuple[int, int]] = {}  # SERVICE.GENERATION -> pid, start tick
        self.ports: dict[str, int] = {}  # SERVICE.PORT of a held one, else SERVICE.GENERATION.PORT -> number
        self._dead: tuple[int, int] | None = None

    def write(self) -> ToyRun:
        """Write its files. A service that is none of ``processes`` has ended."""
        for path in self.recorded.rglob("*"):
            if path.is_file():
                target = self.run_dir / path.relative_to(self.recorded)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self._file(path))
        return ToyRun(self.run_dir)

    def _file(self, path: Path) -> str:
        text = path.read_text()
        if path.suffix not in (".json", ".jsonl"):
            return str(self.fill(text))
        return "".join(json.dumps(self.fill(json.loads(line))) + "\n" for line in text.splitlines())

    def fill(self, value: Any) -> Any:
        """A recorded JSON value with what its placeholders stand for here."""
        if isinstance(value, dict):
            return {key: self.fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner) for inner in value]
        if not isinstance(value, str):
            return value
        if _PLACEHOLDER.fullmatch(value):
            return self._of(value)
        return _PLACEHOLDER.sub(lambda match: str(self._of(match[0])), value)

    def _of(self, placeholder: str) -> str | int:
        kind, _, name = placeholder.strip("<>").partition(":")
        if not name:
            return self._words[placeholder]
        if kind == "port":
            service, _, port = name.split(".")
            return self.ports.get(f"{service}.{port}") or self.ports.setdefault(name, free_port())
        self._dead = self._dead or dead_process()
        return self.processes.get(name, self._dead)[kind == "tick"]


class OldKeeper:
    """The keeper of an earlier version, started as its backend did, with the services that this asked it for."""

    def __init__(self, restored: Restored) -> None:
        run_dir = restored.run_dir
        (program,) = restored.recorded.parent.glob("keeper*")  # a script or a directory
        tag = {"LIVERL_RUN": f"{restored.run_name}/keeper/0", "LIVERL_RUN_DIR": str(run_dir)}
        with open(run_dir / "keeper.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(program), str(run_dir)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=inherited() | tag,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        with self.process.stdout as out:
            assert out.readline() == b"ready\n", (run_dir / "keeper.log").read_text()
        tick = procfs.start_tick(self.process.pid)
        assert tick is not None
        restored.processes["keeper"] = self.process.pid, tick
        self._replay(restored)

    def _replay(self, restored: Restored) -> None:
        """Ask what the old backend asked, but for the processes that had ended when it was killed."""
        ended = {path.stem for path in (restored.recorded / "exits").iterdir()}
        directory = os.open(restored.run_dir, os.O_PATH)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"/proc/self/fd/{directory}/keeper.sock")
            os.close(directory)
            with sock.makefile("rb") as lines:
                for line in (restored.recorded / "keeper_requests.jsonl").read_text().splitlines():
                    request = json.loads(line)
                    if request.get("token") not in ended:
                        self._ask(restored, sock, lines, restored.fill(request))

    def _ask(
        self, restored: Restored, sock: socket.socket, lines: Iterable[bytes], request: dict[str, Any]
    ) -> None:
        if request["do"] == "spawn":
            Path(request["log"]).parent.mkdir(parents=True, exist_ok=True)
            request["env"] = inherited() | request["env"]
            request["argv"] = [str(word) for word in request["argv"]]
        sock.sendall(json.dumps({"id": 1, **request}).encode() + b"\n")
        answer = next(
            found for found in map(json.loads, lines) if "id" in found
        )  # else an end, told to everybody
        assert "error" not in answer, answer
        if request["do"] == "listen":
            restored.ports[request["name"]] = answer["port"]
        elif request["do"] == "spawn":
            restored.processes[request["token"]] = answer["pid"], answer["tick"]

    def workers(self, restored: Restored, service: str, count: int) -> None:
        """Wait for the processes that a service starts itself, and make them known as SERVICE.1/0 and so on."""
        leader = restored.processes[f"{service}.1"][0]

        def children() -> list[tuple[int, int]]:
            return [(pid, proc.tick) for pid, proc in procfs.scan().items() if proc.ppid == leader]

        found = wait_until(
            lambda: len(told := children()) == count and told, what=f"the workers of {service}"
        )
        assert found
        restored.processes |= {f"{service}.1/{index}": member for index, member in enumerate(found)}


def inherited() -> dict[str, str]:
    """This environment, without what a run puts into it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LIVERL_")}
