"""Record small run directories of this version, for ``tests/process/test_older_runs.py`` of the versions after it.

``PYTHONPATH=tests python tests/kit/record_runs.py OUT`` writes ``OUT/done``, ``OUT/failed``, ``OUT/killed`` and
``OUT/plan_verl.json``. What is of this machine becomes a placeholder: ``<run_dir>``, ``<python>``, ``<toy>``,
``<package>``, ``<host>``, ``<boot_id>``, ``<era>``, ``<cache>``, and in ``killed`` the number of each process, start
tick and port: ``<pid:SERVICE.GENERATION>``, ``<tick:...>``, ``<port:SERVICE.GENERATION.NAME>``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import liverl
from kit.real import real_run
from kit.runs import TOY, WEB, ToyRun, make_run, toy
from kit.waiting import wait_until
from liverl import config as configuration
from liverl.control import blocking
from liverl.daemon import main as backend
from liverl.environments import default_cache_dir
from liverl.plan import make_plan
from liverl.plan.spec import Plan, PortSpec, Probe, Probes, RestartPolicy
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl.supervise.keeper.client import KeeperClient

NEVER = RestartPolicy(mode="never")
KEPT = ("config.yaml", "plan.json", "journal.jsonl", "events.jsonl", "members.json", "result.json", "snapshot.json",
        "history.jsonl", "metrics.jsonl", "trainer.json", "replicas.json", "backend.json", "keeper.json")  # fmt: skip
LIMIT = 24 << 10  # bytes of a trial's file that is kept
REQUESTS = "keeper_requests.jsonl"


def record_done(folder: Path, out: Path) -> None:
    """A run of the embedded default that has trained its one step."""
    sizes = ("total_steps=1", "n_resp_per_prompt=2", "train_batch_size=1", "train_prompt_mini_batch_size=1")
    run = real_run(folder, *(f"training.{size}" for size in sizes), "run.replicas=1")
    try:
        run.start()
        assert run.result(300).state == "done"
        store(run.run_dir, out, {}, "trials", "exits", "attempt_001/logs/trainer.1.log")
    finally:
        run.end()


def record_failed(folder: Path, out: Path) -> None:
    """A run whose one task has raised an exception."""
    task = toy("task", "raise", kind="trainer", ends_run=True, restart=NEVER)
    run = make_run(folder, [toy("other", "sleep"), task], name="failed")
    try:
        run.start()
        assert run.result().state == "failed"
        store(run.run_dir, out, {}, "exits", "attempt_001/logs/task.1.log")
    finally:
        run.end()


def record_killed(folder: Path, out: Path) -> None:
    """A run with every kind of record in its journal, whose backend is killed while its services live."""
    probes = Probes(startup=Probe("http", port="http", interval=0.1))
    http = {"ports": (PortSpec("http"),), "probes": probes, "kind": "replica"}
    door = toy("door", ports=(PortSpec("http", held=True),), probes=probes)
    run = make_run(
        folder,
        [
            replace(door, argv=(sys.executable, "-c", WEB)),
            toy("tree", "tree"),
            toy("over", "exit", "0", restart=NEVER),
            toy("late", "exit-when", "3", "late-ends", fatal=False, restart=NEVER),
            toy("trainer", "exit-when", "0", "go", kind="trainer", ends_run=True, restart=NEVER),
        ],
        replica=toy("replica-{index}", "http", "{port:http}", **http),
        replicas=2,
        name="killed",
    )
    try:
        start_tapped(run)
        for name in ("door", "replica-0", "replica-1", "late", "trainer"):
            run.until(name, "ready")
        run.until("over", "stopped")
        with blocking.Connection(run.run_dir) as connection:
            connection.command(
                "scale", {"delta": 1}, wait=False
            )  # without a proxy it would wait to be listed
        wait_until(
            lambda: (s := run.snapshot().service("replica-2")) and s.state == "ready", what="replica-2"
        )
        run.command("restart", service="replica-1")
        run.command("stop_service", service="replica-0")
        run.command("start_service", service="replica-0")
        run.until("tree", lambda s: len(s.members) == 4)
        files = RunDir(run.run_dir)
        wait_until(lambda: files.members.exists() and b"tree.1" in files.members.read_bytes(), what="members")
        wait_until(
            lambda: (s := files.read_snapshot()) is not None and len(s.replicas.items) == 3, what="a snapshot"
        )
        run.kill_backend()
        store(run.run_dir, out, numbers(run.run_dir), "exits", REQUESTS)
    finally:
        run.end()


def start_tapped(run: ToyRun) -> None:
    """Start the backend, with what it asks of the keeper written down."""
    with open(run.run_dir / "backend.log", "ab") as log:
        argv = [sys.executable, __file__, "--backend", "--run-dir", str(run.run_dir)]
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    run.backends.append(process.pid)
    wait_until(RunDir(run.run_dir).backend.exists, what="the backend's record")
    wait_until(lambda: run.snapshot().services, what="the backend's answer")


def tapped_backend() -> None:
    """The backend's own entry point; each request to the keeper becomes a line of ``REQUESTS``."""
    path = Path(sys.argv[sys.argv.index("--run-dir") + 1]) / REQUESTS
    ask = KeeperClient.request

    async def request(self: Any, do: str, *, fd: int | None = None, **args: Any) -> dict[str, Any]:
        with path.open("a") as file:
            env = {k: v for k, v in args.get("env", {}).items() if k.startswith(("LIVERL_", "PYTHONUNB"))}
            file.write(json.dumps({"do": do, **args, **({"env": env} if env else {})}) + "\n")
        return await ask(self, do, fd=fd, **args)

    KeeperClient.request = request  # type: ignore[method-assign]
    backend.main()


def numbers(run_dir: Path) -> dict[int, str]:
    """Placeholders of the processes and ports of a run's directory."""
    found: dict[int, str] = {}

    def name(number: int, text: str) -> None:
        assert found.setdefault(number, text) == text, f"{number} is {found[number]} and {text}: record again"

    for line in (run_dir / "journal.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["k"] == "spawned":
            name(record["pid"], f"<pid:{record['svc']}.{record['gen']}>")
        elif record["k"] == "intent":
            for port, number in record["ports"].items():
                name(number, f"<port:{record['svc']}.{record['gen']}.{port}>")
    for key, members in json.loads((run_dir / "members.json").read_text())["trees"].items():
        workers = sorted(pid for pid, _ in members if pid not in found)
        for index, pid in enumerate(workers):
            name(pid, f"<pid:{key}/{index}>")
    for service in ("backend", "keeper"):
        name(json.loads((run_dir / f"{service}.json").read_text())["pid"], f"<pid:{service}>")
    return found


def words(run_dir: Path | str) -> dict[str, str]:
    """What is of this machine, and what stands for it; the longest first."""
    found = {
        str(run_dir): "<run_dir>",
        str(TOY): "<toy>",
        sys.executable: "<python>",
        str(Path(liverl.__file__).parent): "<package>",
        str(default_cache_dir()): "<cache>",
        procfs.pid_era(): "<era>",
        procfs.boot_id(): "<boot_id>",
        str(Path.home()): "<home>",
    }
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def clean(value: Any, texts: Mapping[str, str], numbers: Mapping[int, str]) -> Any:
    """A JSON value with placeholders."""
    if isinstance(value, dict):
        found = {key: clean(inner, texts, numbers) for key, inner in value.items()}
        return found | (
            {"tick": tick_of(found["pid"])} if value.get("pid") in numbers and "tick" in value else {}
        )
    if isinstance(value, list):
        if (
            len(value) == 2 and isinstance(value[0], int) and value[0] in numbers
        ):  # a member of a tree: pid, start tick
            return [numbers[value[0]], tick_of(numbers[value[0]])]
        return [clean(inner, texts, numbers) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return numbers.get(value, value)
    return clean_text(value, texts, numbers) if isinstance(value, str) else value


def tick_of(pid: str) -> str:
    """The placeholder of a process's start tick."""
    return pid.replace("<pid:", "<tick:")


def clean_text(text: str, texts: Mapping[str, str], numbers: Mapping[int, str]) -> str:
    if text == os.uname().nodename:  # which may be a short word: it is looked for nowhere else
        return "<host>"
    for of_machine, placeholder in texts.items():
        text = text.replace(of_machine, placeholder)
    return re.sub(r"\d{3,}", lambda m: numbers.get(int(m[0]), m[0]), text)


def store(run_dir: Path, out: Path, numbers: Mapping[int, str], *more: str) -> None:
    """Copy what tells the run's story, without what is of this machine."""
    texts = words(run_dir)
    paths = [run_dir / name for name in (*KEPT, *more)]
    paths = [inner for path in paths for inner in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    paths = [
        path for path in paths if path.is_file() and not {"sandbox", "agent", "verifier"} & {*path.parts}
    ]
    for path in (path for path in paths if "trials" not in path.parts or path.stat().st_size < LIMIT):
        target = out / path.relative_to(run_dir)
        target.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        if path.suffix in (".json", ".jsonl"):
            lines = [json.dumps(clean(json.loads(line), texts, numbers)) for line in lines]
            target.write_text("".join(line + "\n" for line in lines))
        else:
            target.write_text(clean_text(lines[0], texts, numbers))


def record_plan(out: Path) -> None:
    """The plan of a run of verl that names every module of ours which verl's processes import."""
    sets = ["run.name=n", "verl.rollout_mode=standalone", "verl.rollout_gpus=1"]
    env = {"HOME": "/home/user"}
    loaded = configuration.load_config(profile="cpu-verl", sets=sets, env=env)
    resolved = configuration.resolved(loaded.config, env=env, cwd=Path("/work"), now=0.0)
    plan: Plan = make_plan(replace(loaded, config=resolved), Path("/runs/p/n"))
    plan = replace(plan, inert=())
    out.write_text(
        json.dumps(clean(msgspec.json.decode(msgspec.json.encode(plan)), words(plan.run_dir), {})) + "\n"
    )


def main() -> None:
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")  # the index of live runs is the user's
        ways = {"done": record_done, "failed": record_failed, "killed": record_killed}
        for what, record in ways.items() if len(sys.argv) < 3 else [(sys.argv[2], ways[sys.argv[2]])]:
            shutil.rmtree(out / what, ignore_errors=True)
            record(folder, out / what)
        record_plan(out / "plan_verl.json")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1] == "--backend":
        del sys.argv[1]
        tapped_backend()
    else:
        main()
