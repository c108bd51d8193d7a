"""Links, FIFOs and directories in place of files that the sessions write, of what the archive copies and of the ledger:
nothing is written or read through them, and no turn is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from fault_cases.base import Outcome, Part, Shared
from fault_cases.hosted import hosted, part, rows_of, sampled

PRECIOUS = b"precious, and 0123456789 secret\n"
FILES = ("litellm-trajectory.jsonl", "proxy_trajectory.json")
# (the file's place, the victim). No hard link: only who owns the file can make one, and could write it anyway.
PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "a link to a file": lambda path, victim: path.symlink_to(victim),
    "a link to a new file": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "a link to a directory": lambda path, victim: path.symlink_to(victim.parent),
    "a link to a link": lambda path, victim: (path.with_name("l").symlink_to(victim), path.symlink_to("l")),
    "a link to a device": lambda path, victim: path.symlink_to("/dev/full"),
    "a FIFO": lambda path, victim: os.mkfifo(path),
    "a directory": lambda path, victim: path.mkdir(),
}
MOMENTS = ("before the first turn", "between two turns", "before the end")
COPIED = (
    *("agent/trajectory.json", "verifier/reward.txt", "result.json", "litellm-trajectory.jsonl"),
    *("proxy_trajectory.json", "agent.log", "verifier.log", "config.json", "exception.txt"),
)


def cases() -> Iterator[Shared]:
    """Each plant at each moment; directories of trials that become links; the archive; the ledger."""
    yield Shared("planted in place of a trial's files", _planted, len(PLANTS) * len(FILES) * len(MOMENTS))
    yield Shared("a trial's directory becomes a link", _swapped, 2 * len(MOMENTS))
    yield Shared("planted for the archive", _archived, 2 * len(COPIED))


def _victim(folder: Path, number: int) -> Path:
    path = folder / f"victim{number}" / "file"
    path.parent.mkdir()
    path.write_bytes(PRECIOUS)
    return path


def _untouched(victim: Path) -> str:
    if victim.read_bytes() != PRECIOUS:
        return "the file behind it was written"
    new = sorted(p.name for p in victim.parent.iterdir() if p != victim)
    return f"beside it appeared {', '.join(new)}" if new else ""


def _planted(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        found = []
        for file in FILES:
            for title, plant in PLANTS.items():
                for moment in MOMENTS:
                    number = len(found)
                    victim = _victim(folder, number)

                    def put(trial: Path, name: str = file, make=plant, to: Path = victim) -> None:  # type: ignore[no-untyped-def]
                        path = trial / name
                        path.unlink(missing_ok=True)
                        make(path, to)

                    one = _one(host, replica, f"task-{number:08}", moment, put, victim)
                    found.append(await part(f"{file} is {title}, {moment}", one))
        return found

    return hosted(folder, work)


async def _one(
    host: SessionHost, replica: TokenReplica, name: str, moment: str, put, victim: Path
) -> Outcome:  # type: ignore[no-untyped-def]
    """A turn that is refused because of the plant may be asked again; what was answered is in the rows."""
    before = len(replica.replies)
    opened = await host.open(name)
    trial = host.folder / "trials" / name
    messages = [{"role": "user", "content": "x"}]
    for turn in range(2):
        if turn == MOMENTS.index(moment):
            put(trial)
        status, body = await host.chat(opened, *messages)
        if status != 200:
            assert body["error"]["message"], "a refusal without a sentence"
            break
        messages += [body["choices"][0]["message"], {"role": "user", "content": "on"}]
    if moment == "before the end":
        put(trial)
    answered = sum(message["role"] == "assistant" for message in messages)
    rows = await rows_of(host, name)
    found = sampled(rows or [])
    wanted = [token for reply in replica.replies[before : before + answered] for token in reply]
    why = _untouched(victim)
    return Outcome(leaked=int(bool(why)), lost=int(found[: len(wanted)] != wanted), note=why)


def _swapped(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        found = []
        for title in ("another folder", "another trial"):
            for moment in MOMENTS:
                number = len(found) + 1000
                victim = _victim(folder, number)
                if title == "another trial":
                    (victim.parent / FILES[0]).write_bytes(PRECIOUS)
                before = {p.name: p.read_bytes() for p in victim.parent.iterdir()}

                def put(trial: Path, to: Path = victim.parent) -> None:
                    shutil.rmtree(trial)
                    trial.symlink_to(to)

                async def one(name: str, moment: str, put, victim: Path, before: dict[str, bytes]) -> Outcome:  # type: ignore[no-untyped-def]
                    outcome = await _one(host, replica, name, moment, put, victim)
                    now = {p.name: p.read_bytes() for p in victim.parent.iterdir()}
                    return Outcome(
                        leaked=int(now != before), lost=outcome.lost, note="written through the link"
                    )

                work = one(f"task-{number:08}", moment, put, victim, before)
                found.append(await part(f"a trial's directory is a link to {title}, {moment}", work))
        return found

    return hosted(folder, work)


def _archived(folder: Path) -> list[Part]:
    """A run's trials hold links to a private file, absolute and through their parent; the archive is looked at."""
    from kit.cli import run_cli
    from kit.runs import make_run, toy

    run = make_run(folder, [toy("trainer", "exit", "1", kind="trainer", ends_run=True)])
    private = folder / "private"
    private.write_bytes(PRECIOUS)
    private.chmod(0o600)
    run.start()
    run.result()
    os.environ["HOME"] = str(folder)
    places = []
    for number, name in enumerate(COPIED):
        for way in ("itself", "its directory"):
            trial = run.run_dir / "trials" / "step_0001" / f"t{number}-{len(places)}"
            path = trial / name
            path.parent.mkdir(parents=True)
            (trial / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
            if way == "itself" or "/" not in name:
                path.unlink(missing_ok=True)
                path.symlink_to(private if way == "itself" else os.path.relpath(private, path.parent))
            else:
                path.parent.rmdir()
                outside = folder / f"outside{number}"
                outside.mkdir()
                (outside / path.name).write_bytes(PRECIOUS)
                path.parent.symlink_to(outside)
            places.append((trial.name, name, way))
    done = run_cli("archive", run.run_dir, HOME=str(folder))
    assert done.returncode == 0, done.stderr
    target = Path(done.stdout.strip())
    found = []
    for trial_name, name, way in places:
        copies = [
            p for p in target.rglob(Path(name).name) if trial_name in str(p) and p.read_bytes() == PRECIOUS
        ]
        outcome = Outcome(leaked=len(copies), note="a private file is in the archive" if copies else "")
        found.append(Part(f"archive: {name} of a trial leads out by {way}", outcome))
    return found
