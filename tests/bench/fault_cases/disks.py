"""Disks that fail while sessions are open: every error of every operation, and a disk that is really full. What the
agent was answered is in the rows, once, and the trial's file has whole lines only. Needs root (FUSE, mounts)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from kit.mounts import fill, mount, own_mounts
from kit.session_host import SessionHost
from kit.slow_files import slow_files
from kit.token_replica import TokenReplica

from fault_cases.base import Outcome, Part, Shared
from fault_cases.hosted import USER, hosted, part, rows_of, sampled, turns

ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "EACCES")
OPERATIONS = ("write", "fsync", "create", "rename")
MOMENTS = ("in a turn", "at the end", "at the begin")
FREE = (0, 1, 2, 3, 5, 8)  # pages of 4096 bytes
SIZES = (10, 3000, 9000)  # characters of what the user says: the files then need other pages


def cases() -> Iterator[Shared]:
    """Errors through FUSE, and a tmpfs with so many free pages."""
    yield Shared("errors of the storage", _errors, len(ERRORS) * len(OPERATIONS) * len(MOMENTS))
    yield Shared("a full tmpfs", _full, len(FREE) * len(SIZES) * len(MOMENTS))


def _errors(folder: Path) -> list[Part]:
    own_mounts()
    with slow_files(folder, folder / "disk") as files:

        async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
            found = []
            for error in ERRORS:
                for operation in OPERATIONS:
                    for moment in MOMENTS:
                        name = f"task-{len(found):08}"

                        def fail(what: str = operation, how: str = error) -> None:
                            files.slow({what: how})

                        one = _one(host, replica, name, moment, fail, files.quick)
                        found.append(await part(f"{error} of each {operation}, {moment}", one))
                        files.quick()
            return found

        return hosted(files.place, work)


def _full(folder: Path) -> list[Part]:
    own_mounts()
    disk = folder / "disk"
    disk.mkdir()
    mount("tmpfs", str(disk), "tmpfs", 0, "size=8m")

    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        found = []
        filler = disk / "filler"
        for pages, letters in itertools.product(FREE, SIZES):
            for moment in MOMENTS:
                name = f"task-{len(found):08}"

                def full(left: int = pages) -> None:
                    fill(disk)
                    with filler.open("r+b") as file:
                        file.truncate(max(filler.stat().st_size - left * 4096, 0))

                one = _one(host, replica, name, moment, full, lambda: filler.unlink(missing_ok=True), letters)
                found.append(await part(f"full but for {pages} pages, {letters} letters, {moment}", one))
                filler.unlink(missing_ok=True)
        return found

    return hosted(disk, work)


async def _one(
    host: SessionHost,
    replica: TokenReplica,
    name: str,
    moment: str,
    fail: Callable[[], object],
    heal: Callable[[], object],
    letters: int = 10,
) -> Outcome:
    trial = host.folder / "trials" / name
    trial.mkdir()
    body = {"id": name, "trial_dir": str(trial), "limits": {}}
    if moment == "at the begin":
        fail()
    status, opened = await host.control("POST", "/sessions", body)
    heal()
    if status != 201:
        assert opened["error"]["message"], "a refusal without a sentence"
        status, opened = await host.control("POST", "/sessions", body)
        assert status == 201, f"after the disk was well again: HTTP {status}: {opened}"
    messages = await turns(host, opened, 1)
    messages[-1] = {"role": "user", "content": "x" * letters}
    if moment == "in a turn":
        fail()
        status, answer = await host.chat(opened, *messages)
        heal()
        if status == 200:
            messages += [answer["choices"][0]["message"], USER]
        else:
            assert answer["error"]["message"], "a refusal without a sentence"
    status, answer = await host.chat(opened, *messages)
    assert status == 200, f"after the disk was well again: HTTP {status}: {answer}"
    messages += [answer["choices"][0]["message"]]
    if moment == "at the end":
        fail()
        await host.control("POST", f"/sessions/{name}/finish")
        heal()
    rows = await rows_of(host, name)
    said = [m["content"] for m in messages if m["role"] == "assistant"]
    wanted = [[*text.encode()] for text in said]  # the replica's ids are the bytes of its words
    found = bytes(token for token in sampled(rows or []) if token < 256)
    doubled = sum(max(found.count(bytes(ids)) - said.count(bytes(ids).decode()), 0) for ids in wanted)
    lost = sum(bytes(ids) not in found for ids in wanted)
    lines = (trial / "litellm-trajectory.jsonl").read_bytes().splitlines()
    torn = sum(not _whole(line) for line in lines)
    missing = max(len(said) - (len(lines) - torn), 0)
    twice = len(lines) - torn - len(set(lines))
    note = (
        f"the trial's file: {torn} torn lines, {missing} turns missing, {twice} twice"
        if torn or missing
        else ""
    )
    return Outcome(lost=lost + missing, doubled=doubled + max(twice, 0), note=note)


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
