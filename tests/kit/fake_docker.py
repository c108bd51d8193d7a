"""SIMULATED: a scripted ``docker`` program for tests of what our own code does with its answers; no daemon is behind
it. What a real daemon does is shown in ``tests/docker``.

Its daemon is a JSON file: ``things`` (kind -> id -> fields), ``refuse`` (ids that cannot be removed), ``hang`` (seconds
that every call takes).
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.harbor_tasks import write_task
from liverl.agents.harbor.owned import Ledger, identity, project_of

_PROGRAM = """#!{python} -IS
import fcntl, json, os, sys, time
state, words = {state!r}, sys.argv[1:]
with open(state + ".calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
with open(state + ".lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    daemon = json.load(open(state))
    if daemon.get("away"):
        print("Cannot connect to the Docker daemon at " + daemon["away"] + ".", file=sys.stderr)
        sys.exit(1)
    if daemon.get("hang"):
        time.sleep(daemon["hang"])
    kinds = {{"ps": "container", "rm": "container", "stop": "container"}}
    kind = kinds.get(words[0], words[0])
    things = daemon["things"].setdefault(kind, {{}})
    if words[:2] == ["container", "inspect"]:
        missing = [id for id in words[4:] if id not in daemon["things"].get("container", {{}})]
        for id in words[4:]:
            one = daemon["things"].get("container", {{}}).get(id)
            if one is not None:
                print(json.dumps({{"id": id, "name": "/" + one["name"], "state": one.get("state", "running"),
                    "exit": one.get("exit", 0), "oom": one.get("oom", False), "labels": one["labels"],
                    "started": one.get("started", "2027-01-15T08:00:00.123456789Z"),
                    "ended": one.get("ended", "0001-01-01T00:00:00Z")}}))
        for id in missing:
            print("Error response from daemon: No such container: " + id, file=sys.stderr)
        sys.exit(1 if missing else 0)
    if words[:2] == ["info", "--format"]:
        print(json.dumps({{"version": "28.2.2", "root": daemon.get("root", "/"), "pools": daemon.get("pools")}}))
        sys.exit(0)
    if words[:2] == ["network", "inspect"]:
        for number, id in enumerate(words[4:]):
            one = daemon["things"].get("network", {{}}).get(id)
            if one is not None:
                print(json.dumps({{"id": id, "name": one["name"], "labels": one["labels"], "containers": {{}},
                    "ipam": [{{"Subnet": one.get("subnet", "172.%d.0.0/16" % (18 + number))}}]}}))
        sys.exit(0)
    if words == ["network", "ls", "--quiet", "--no-trunc"]:
        print(chr(10).join(things))
        sys.exit(0)
    if words[0] == "events":
        for event in daemon.get("ooms", []):
            print(json.dumps(event))
        sys.exit(0)
    if "--quiet" in words:
        wanted = words[-1].removeprefix("label=liverl.run-id=")
        for id, one in things.items():
            if one["labels"].get("liverl.run-id") == wanted:
                print(id)
        for id in daemon.get("vanishing", []) if kind == "container" else []:
            print(id)
        sys.exit(0)
    if "--format" in words:
        for id, one in things.items():
            print(json.dumps([id, one["name"], one.get("state", ""), *(
                [] if kind == "image" else [one["labels"].get(name, "") for name in (
                    "liverl.run-id", "liverl.trial", "liverl.kept", "com.docker.compose.project",
                    "com.docker.compose.service", "com.docker.compose.container-number")])]))
        sys.exit(0)
    code = 0
    for id in words:
        key = id.partition(":")[0] if kind == "image" else id
        if key not in things:
            continue
        if key in daemon.get("refuse", []):
            print("Error response from daemon: " + key + " is in use", file=sys.stderr)
            code = 1
        elif words[0] == "stop":
            things[key]["state"] = "exited"
        else:
            del things[key]
    with open(state + ".new", "w") as new:
        new.write(json.dumps(daemon))
    os.replace(state + ".new", state)
    sys.exit(code)
"""


class FakeDocker:
    """The program, and the state of its daemon."""

    def __init__(self, folder: Path) -> None:
        self.bin, self._state = folder / "bin", folder / "docker.json"
        self.bin.mkdir(parents=True)
        program = self.bin / "docker"
        program.write_text(_PROGRAM.format(python=sys.executable, state=str(self._state)))
        program.chmod(0o755)
        self._write({"things": {}})

    @property
    def env(self) -> dict[str, str]:
        """With the program first on PATH."""
        return {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}

    @property
    def there(self) -> dict[str, list[str]]:
        """What the daemon has, by kind."""
        return {kind: sorted(one) for kind, one in self._read()["things"].items() if one}

    @property
    def things(self) -> dict[str, dict[str, dict[str, object]]]:
        """What the daemon has, to change and hand to ``set``."""
        return self._read()["things"]  # type: ignore[return-value]

    @property
    def calls(self) -> list[list[str]]:
        """Every command so far."""
        path = Path(f"{self._state}.calls")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def set(self, **values: object) -> None:
        """Change ``refuse``, ``hang``, ``away`` (its address), ``vanishing`` (ids that go), ``ooms`` (events) or
        ``things``."""
        with self._held():
            self._write({**self._read(), **values})

    def sandbox(self, run_dir: Path, trial: str, *, kept: bool = False) -> None:
        """A container, a network and an image of a trial, as Compose makes them with our overlay."""
        labels = {
            "liverl.run-id": identity(run_dir),
            "liverl.trial": trial,
            "liverl.kept": "true" if kept else "",
        }
        self._add(trial, labels)

    def stranger(self, name: str) -> None:
        """The same of somebody else."""
        self._add(name, {"liverl.run-id": "0" * 32, "liverl.trial": name})

    def _add(self, trial: str, labels: dict[str, str]) -> None:
        project = project_of(trial)
        labels |= {"com.docker.compose.project": project, "com.docker.compose.service": "main"}
        numbered = {**labels, "com.docker.compose.container-number": "1"}
        with self._held():
            state = self._read()
            things = state["things"]
            things.setdefault("container", {})[f"c-{trial}"] = {
                "name": f"{project}-main-1", "state": "running", "labels": numbered,
            }  # fmt: skip
            things.setdefault("network", {})[f"n-{trial}"] = {"name": f"{project}_default", "labels": labels}
            things.setdefault("image", {})[f"{project}-main"] = {"name": f"{project}-main", "state": "latest"}
            self._write(state)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """While no ``docker`` changes the state."""
        with open(f"{self._state}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, dict[str, dict[str, object]]]:
        found: dict[str, dict[str, dict[str, object]]] = json.loads(self._state.read_text())
        return found

    def _write(self, state: object) -> None:
        new = Path(f"{self._state}.new")
        new.write_text(json.dumps(state))
        new.rename(self._state)


def begin(
    run_dir: Path, folder: Path, trials: Iterable[str], *, worker: str = "worker-1", kept: bool = False
) -> Ledger:
    """Enter trials in the ledger of a worker, which is this process."""
    task = Path(write_task(folder, "task", "say hello"))
    ledger = Ledger(run_dir, worker, "attempt_001", {})
    for trial in trials:
        ledger.begin(trial, task, kept=kept)
    return ledger
