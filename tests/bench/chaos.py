"""A run of the embedded default, through the sessions, under everything at once; at the end the books must balance.

``python tests/bench/chaos.py [--minutes 30] [--seed 7] [--only kill,disk,...] [--json FILE]``. Every few seconds, as
the seed says: processes are killed, the disk of the run is full for a while, the clock of all its processes is stepped,
its ports are flooded, or it is stopped and resumed. Then it is left alone for a few steps and stopped.

The books: every trial has a result, or ended with its trainer; every turn is once in its trial's file, in the counters
and in the rows; every step has its metrics once, with the mean of its trials' rewards; no process is left. What is
missing although the run has told of it (a write that failed on the full disk) counts as named. Exit code 1 if anything
was lost, doubled or left without a word. Full disks need root (a tmpfs in a mount namespace), clocks a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "backend"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[2:4])

from kit.cli import run_cli  # noqa: E402
from kit.mounts import fill, mount, own_mounts, unmount  # noqa: E402
from kit.real import real_run, trial_dirs  # noqa: E402
from kit.runs import ToyRun  # noqa: E402
from kit.waiting import wait_until  # noqa: E402

from liverl.procs import procfs  # noqa: E402

KINDS = ("kill", "disk", "clock", "flood", "resume")
WEIGHTS = {"kill": 10.0, "disk": 1.0, "clock": 1.5, "flood": 1.5, "resume": 0.5}
VICTIMS = {"backend": 5.0, "sessions": 5.0, "keeper": 2.0, "proxy": 1.0, "trainer": 0.6}  # others 2
DISK = "512m"
STEP_S = 5 * 86_400.0  # the longest step of the clock
BATCH = 8  # trials of a step
MESSAGE = 200  # characters of a failed trial's message that are shown
QUIET_STEPS = 3  # after the last fault
SETTINGS = (
    *("training.total_steps=100000", "proxy.trials_through=sessions", "trainer.restart=from_checkpoint"),
    *("supervise.storm_failures=100000", "supervise.restart_cap=2", "embedded.turn_latency=0.1"),
)


@dataclass
class Books:
    """What is in the files of a run that has ended. ``problems``: what is lost, doubled or left, each in a line;
    ``named``: what is missing and was told."""

    trials: int = 0
    results: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    with_their_trainer: int = 0
    turns: int = 0
    rows: int = 0
    steps: int = 0
    rewards_checked: int = 0
    lost: int = 0
    doubled: int = 0
    named: int = 0
    problems: list[str] = field(default_factory=list)

    def lose(self, what: str, count: int = 1) -> None:
        """Something that should be there is not."""
        self.lost += count
        self.problems.append(f"lost: {what}")

    def double(self, what: str, count: int = 1) -> None:
        """Something is there twice."""
        self.doubled += count
        self.problems.append(f"doubled: {what}")

    @property
    def balanced(self) -> bool:
        """Whether every trial, turn and reward is there once, or named."""
        return not self.problems


class Clock:
    """The clock of all processes that are started while it is in the environment."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError, CalledProcessError: there is no C compiler."""
        self._file, self._suspended = folder / "clock", 0.0
        library = folder / "clock_shim.so"
        source = str(HERE / "clock_shim.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"], check=True)
        self._file.write_bytes(struct.pack("dd", 0.0, 0.0))
        os.environ["LD_PRELOAD"] = str(library)
        os.environ["LD_LIVERL_FAULT_CLOCK"] = str(self._file)

    def step(self, wall: float, suspended: float = 0.0) -> None:
        """Let the wall clock be ``wall`` seconds off. ``suspended``: CLOCK_BOOTTIME goes ahead by so many seconds; it
        never goes back."""
        self._suspended += suspended
        with self._file.open("r+b") as file:
            file.write(struct.pack("dd", wall, self._suspended))


class Chaos:
    """The faults of one seed, done to a run."""

    def __init__(
        self, run: ToyRun, seed: int, kinds: tuple[str, ...], disk: Path | None, clock: Clock | None
    ) -> None:
        self.run, self.random, self.disk, self.clock = run, random.Random(seed), disk, clock
        self.kinds = [k for k in kinds if (k != "disk" or disk) and (k != "clock" or clock)]
        self.done: Counter[str] = Counter()

    def act(self) -> str:
        """One fault, and what brings the run back."""
        kind = self.random.choices(self.kinds, [WEIGHTS[k] for k in self.kinds])[0]
        what = {
            "kill": self._kill,
            "disk": self._full,
            "clock": self._step,
            "flood": self._flood,
            "resume": self._resume,
        }[kind]()
        self.done[kind] += 1
        self.bring_back()
        return what

    def bring_back(self) -> None:
        """Start a backend where there is none, and resume a run that has ended."""
        give_up = time.monotonic() + 120
        words = ""
        while time.monotonic() < give_up:
            state = self._state()
            if state in ("running", "starting", "degraded"):
                return
            resume = ["--resume"] if state in ("failed", "stopped", "done") else []
            answer = run_cli("up", "--detach", *resume, "--run", self.run.run_dir, seconds=100)
            words = (answer.stdout + answer.stderr)[-300:]
            if answer.returncode == 0:
                return
            time.sleep(1.0)
        raise AssertionError(f"the run does not come back: {words}")

    def _state(self) -> str:
        try:
            return str(self.run.snapshot().state)
        except Exception:
            pass
        try:
            return str(json.loads((self.run.run_dir / "result.json").read_bytes())["state"])
        except (OSError, ValueError, KeyError):
            return "no backend"

    def _pids(self) -> dict[str, int]:
        """Leaders of the run's services, keeper and backend, by name."""
        found: dict[str, int] = {}
        table = procfs.scan()
        for pid, tag in self.run.tagged().items():
            name, _, _generation = tag.split("/", 2)[2].rpartition("/")
            if pid in table and (table[pid].session == pid or name in ("backend", "keeper")):
                found[name] = pid
        return found

    def _kill(self) -> str:
        pids = self._pids()
        names = sorted(pids)
        if not names:
            return "kill nobody"
        count = self.random.choices((1, 2, 3), (85, 10, 5))[0]
        victims = {self.random.choices(names, [VICTIMS.get(n, 2.0) for n in names])[0] for _ in range(count)}
        for name in sorted(victims):
            try:
                os.kill(pids[name], 9)
            except ProcessLookupError:
                continue
            self.done[f"kill {name}"] += 1
        time.sleep(self.random.uniform(0, 1))
        return f"kill {', '.join(sorted(victims))}"

    def _full(self) -> str:
        assert self.disk is not None
        seconds = self.random.uniform(2, 8)
        filler = None
        try:
            filler = fill(self.disk)
        except AssertionError:
            filler = self.disk / "filler"  # the run freed a block meanwhile
        time.sleep(seconds)
        filler.unlink(missing_ok=True)
        return f"a full disk for {seconds:.1f} s"

    def _step(self) -> str:
        assert self.clock is not None
        size = self.random.choice((2.0, 60.0, 700.0, 7200.0, 86_400.0, STEP_S))
        wall = self.random.choice((-1, 1)) * size
        suspended = size if wall > 0 and self.random.random() < 0.2 else 0.0
        self.clock.step(wall, suspended)
        return f"the clock is {wall:+g} s off" + (", after a suspension" if suspended else "")

    def _flood(self) -> str:
        from second_user import tcp_ports

        held: list[socket.socket] = []
        ports = tcp_ports(self.run)
        if not ports:
            return "flood nobody"
        port = self.random.choice(ports)
        data = self.random.choice(
            (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX: ", b"\0" * 1000)
        )
        try:
            for _ in range(300):
                sock = socket.create_connection(("127.0.0.1", port), 2)
                held.append(sock)
                sock.sendall(data)
        except OSError:
            pass
        time.sleep(self.random.uniform(1, 5))
        for sock in held:
            sock.close()
        return f"{len(held)} connections to a port for a while"

    def _resume(self) -> str:
        now = self.random.random() < 0.5
        answer = run_cli("stop", *(["--now"] if now else []), "--run", self.run.run_dir, seconds=100)
        return f"stop{' --now' if now else ''} (exit code {answer.returncode}) and --resume"


# -- the books


def read_books(run_dir: Path, trainers: int) -> Books:
    """Balance the files of a run that has ended. ``trainers``: how many processes of the trainer have ended."""
    books = Books()
    told = _told(run_dir)
    ids: Counter[str] = Counter()
    rewards: dict[str, list[float]] = defaultdict(list)
    failed: Counter[str] = Counter()
    open_trials: list[Path] = []
    for trial in trial_dirs(run_dir):
        books.trials += 1
        _turns(books, trial, ids, told)
        result = _json(trial / "result.json")
        if result is None:
            open_trials.append(trial)
            continue
        books.results += 1
        error = result.get("exception_info") or {}
        if error:
            message = str(error.get("exception_message"))[:MESSAGE]
            failed[f"{error.get('exception_type')} ({message})"] += 1
        found = (result.get("verifier_result") or {}).get("rewards") or {}
        rewards[trial.parent.name].append(float(found.get("reward", 0.0)))
    books.failed = dict(failed)
    books.turns = sum(ids.values())
    for name, count in ids.items():
        if count > 1:
            books.double(f"turn {name} is {count} times in the trials' files")
    _open_trials(books, run_dir, open_trials, trainers)
    _steps(books, run_dir, rewards, told)
    return books


def _turns(books: Books, trial: Path, ids: Counter[str], told: Counter[str]) -> None:
    """The lines of a trial's file, its counters and its rows agree."""
    path = trial / "litellm-trajectory.jsonl"
    raw = path.read_bytes().split(b"\n") if path.exists() else [b""]
    lines = []
    for number, line in enumerate(raw[:-1], 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            books.lose(f"{trial.name}: line {number} of its turns is torn")
    if raw[-1]:
        books.lose(f"{trial.name}: the last line of its turns has no end")
    ids.update(str(line["response_body"]["id"]) for line in lines if line.get("response_body"))
    rows = _json(trial / "proxy_trajectory.json")
    if rows is None:
        return
    books.rows += len(rows.get("rows", ()))
    calls = (rows.get("counters") or {}).get("num_calls", 0)  # a trial that never asked has no counters
    if calls != len(lines):
        missing = calls - len(lines)
        words = f"{trial.name}: {calls} turns counted, {len(lines)} in its file"
        if missing > 0 and told["write"]:
            books.named += missing
        elif missing > 0:
            books.lose(words, missing)
        else:
            books.double(words, -missing)
    masks = [
        rows.get("traj_response_mask") or [],
        *(row.get("traj_response_mask") or [] for row in rows.get("rows", ())),
    ]
    sampled = sum(map(sum, masks))  # that of the main row stands beside the rows
    written = sum((line.get("usage") or {}).get("completion_tokens", 0) for line in lines)
    if (
        calls == len(lines)
        and rows.get("rows", ())
        and not any((rows.get("not_trained") or {}).values())
        and sampled != written
    ):
        books.lose(f"{trial.name}: {written} tokens in its turns, {sampled} in its rows")


def _open_trials(books: Books, run_dir: Path, trials: list[Path], trainers: int) -> None:
    """A trial without a result was cut off by the end of its trainer: a batch for each at most, in one step."""
    books.with_their_trainer = len(trials)
    steps = Counter(trial.parent.name for trial in trials)
    if len(trials) > BATCH * trainers or len(steps) > trainers:
        books.lose(
            f"{len(trials)} trials without a result in {dict(steps)}, with {trainers} trainers that ended"
        )
    open_names = {trial.name for trial in trials}
    for journal in (run_dir / "sessions").glob("*.jsonl"):
        if journal.stem not in open_names and (run_dir / "sessions").exists():
            books.problems.append(f"left: the session {journal.stem} of a trial that has its result is open")


def _steps(books: Books, run_dir: Path, rewards: dict[str, list[float]], told: Counter[str]) -> None:
    """Each step has its metrics once; its reward is the mean of its trials, where it was run once."""
    lines = [_parsed(line) for line in (run_dir / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    torn = sum(line is None for line in lines)
    if torn:
        books.lose(f"{torn} lines of metrics.jsonl are torn", torn)
    found = Counter(int(line["step"]) for line in lines if line)
    books.steps = len(found)
    for step, count in found.items():
        if count > 1:
            books.double(f"step {step} is {count} times in metrics.jsonl", count - 1)
    missing = sorted(set(range(1, max(found, default=0) + 1)) - set(found))
    if missing and told["write"]:
        books.named += len(missing)
    elif missing:
        books.lose(f"steps without metrics: {missing[:10]}", len(missing))
    for line in lines:
        got = rewards.get(f"step_{int(line['step']):04}", []) if line else []
        if line and len(got) == BATCH and "critic/score/mean" in line["data"]:
            books.rewards_checked += 1
            mean, said = sum(got) / BATCH, line["data"]["critic/score/mean"]
            if abs(mean - said) > 1e-6:
                books.lose(f"step {line['step']}: reward {said:.6f}, the mean of its trials is {mean:.6f}")


def _told(run_dir: Path) -> Counter[str]:
    """How often each kind of event was told."""
    lines = (run_dir / "events.jsonl").read_bytes().split(b"\n")
    return Counter(str(event.get("kind")) for event in map(_parsed, lines) if event)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None


# -- all of it


@contextmanager
def place(kinds: tuple[str, ...]) -> Iterator[tuple[Path, Path | None, Clock | None]]:
    """A folder of its own; on a small tmpfs where the disk is to be full. What cannot be had is said on stderr."""
    folder = Path(tempfile.mkdtemp(prefix="liverl-chaos-"))
    disk, clock = None, None
    kept = dict(os.environ)
    try:
        if "disk" in kinds:
            try:
                own_mounts()
                (folder / "disk").mkdir()
                mount("tmpfs", str(folder / "disk"), "tmpfs", 0, f"size={DISK}")
                disk = folder / "disk"
            except OSError as error:
                print(f"no full disks: {error}", file=sys.stderr)
        if "clock" in kinds:
            try:
                clock = Clock(folder)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"no steps of the clock: {error}", file=sys.stderr)
        yield disk or folder, disk, clock
    finally:
        os.environ.clear()
        os.environ.update(kept)
        if disk is not None:
            unmount(disk)
        shutil.rmtree(folder, ignore_errors=True)


def steps_of(run_dir: Path) -> int:
    """The newest step with metrics; 0 before the first."""
    lines = (
        [_parsed(line) for line in (run_dir / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
        if (run_dir / "metrics.jsonl").exists()
        else []
    )
    return max((int(line["step"]) for line in lines if line), default=0)


def one(
    seed: int,
    minutes: float,
    kinds: tuple[str, ...],
    keep: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Books, Counter[str]]:
    """One run under the faults of a seed; its books, and what was done to it. ``keep``: copy the run there if its books
    do not balance."""
    with place(kinds) as (folder, disk, clock):
        run = real_run(folder, *SETTINGS)
        try:
            run.start()
            wait_until(lambda: steps_of(run.run_dir) >= 1, 240, "the first step")
            chaos = Chaos(run, seed, kinds, disk, clock)
            began = time.monotonic()
            while time.monotonic() - began < minutes * 60:
                time.sleep(chaos.random.uniform(0.5, 3.5))
                said = chaos.act()
                say(f"{time.monotonic() - began:6.0f} s  step {steps_of(run.run_dir):4}  {said}")
            if clock is not None:
                clock.step(0.0)
            chaos.bring_back()
            goal = steps_of(run.run_dir) + QUIET_STEPS
            problems = []
            try:
                wait_until(lambda: steps_of(run.run_dir) >= goal, 240, f"{QUIET_STEPS} quiet steps")
            except AssertionError as error:
                problems.append(f"left: it did not go on: {error}")
            run_cli("stop", "--run", run.run_dir, seconds=100)
            try:
                wait_until(lambda: not run.tagged(), 60, "the end of all processes")
            except AssertionError:
                problems.append(f"left: processes {sorted(run.tagged().values())}")
            books = read_books(run.run_dir, _trainers(run.run_dir))
            books.problems += problems
            if keep is not None and not books.balanced:
                shutil.copytree(
                    run.run_dir, keep / f"seed{seed}", ignore=shutil.ignore_patterns("*.sock", "secrets")
                )
            return books, chaos.done
        finally:
            run.end()


def _trainers(run_dir: Path) -> int:
    """How many processes of the trainer were started; all of them have ended."""
    lines = map(_parsed, (run_dir / "journal.jsonl").read_bytes().split(b"\n"))
    return sum(
        1 for entry in lines if entry and entry.get("k") == "spawned" and entry.get("svc") == "trainer"
    )


def table(seed: int, books: Books, done: Counter[str]) -> str:
    """The books of a seed."""
    kinds = ", ".join(f"{done[kind]} {kind}" for kind in KINDS if done[kind])
    kills = ", ".join(
        f"{count} {name[5:]}" for name, count in sorted(done.items()) if name.startswith("kill ")
    )
    failures = ", ".join(f"{count} {name}" for name, count in sorted(books.failed.items())) or "none"
    lines = [
        f"seed {seed}: {'balanced' if books.balanced else 'NOT BALANCED'}",
        f"  done       {kinds or 'nothing'}" + (f" (killed: {kills})" if kills else ""),
        f"  trials     {books.trials}: {books.results} with a result, "
        f"{books.with_their_trainer} ended with their trainer",
        f"  failed     {failures} (each says so in its result)",
        f"  turns      {books.turns}, rows {books.rows}, steps {books.steps}, rewards compared {books.rewards_checked}",
        f"  lost {books.lost}, doubled {books.doubled}, missing and named {books.named}",
    ]
    shown = books.problems[:20]
    lines += [f"  {problem}" for problem in shown]
    if len(books.problems) > len(shown):
        lines.append(f"  and {len(books.problems) - len(shown)} more")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run it for one or more seeds; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of faults, per seed (default: 30)")
    parser.add_argument("--seed", default="7", metavar="N,...", help="seeds, one run each (default: 7)")
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy runs whose books do not balance there")
    options = parser.parse_args(arguments)
    kinds = tuple(options.only.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no kind {', '.join(sorted(unknown))}; kinds: {', '.join(KINDS)}")
    if not 0 < options.minutes <= 600:
        parser.error("--minutes must be above 0, and 600 at most")
    told: list[dict[str, Any]] = []
    for seed in map(int, options.seed.split(",")):
        books, done = one(
            seed, options.minutes, kinds, options.keep, lambda text: print(text, file=sys.stderr, flush=True)
        )
        print(table(seed, books, done), flush=True)
        told.append({"seed": seed, "done": done, **asdict(books), "balanced": books.balanced})
    if options.json is not None:
        options.json.write_text(json.dumps(told, indent=1))
    return 0 if all(entry["balanced"] for entry in told) else 1


if __name__ == "__main__":
    sys.exit(main())
