"""Journals of sessions that were damaged, swapped or replaced while the service was down: one restart for all."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from fault_cases.base import Outcome, Part, Shared
from fault_cases.hosted import hosted, part, rows_of, sampled, turns

# A journal has five lines: the session, and twice a turn and its delivery. Each damage says how many turns can be read
# afterwards: those of the lines before it.
Damage = Callable[[Path], int]


def _append(data: bytes, path: Path) -> int:
    with path.open("ab") as file:
        file.write(data)
    return 2


def _lines(change: Callable[[list[bytes]], list[bytes]], readable: int, path: Path) -> int:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    return readable


def _cut(seed: int, path: Path) -> int:
    data = path.read_bytes()
    head = data.index(b"\n") + 1
    kept = data[: random.Random(seed).randrange(head, len(data))]
    path.write_bytes(kept)
    return kept[: kept.rindex(b"\n") + 1].count(b'{"type":"turn"')


def _flip(seed: int, path: Path) -> int:
    """A byte of the second turn is another one: what was before it can be read."""
    data = bytearray(path.read_bytes())
    start = data.rindex(b'{"type":"turn"')
    place = random.Random(seed).randrange(start, data.index(b"\n", start))
    data[start] = ord("[")  # no object any more, wherever the flip is
    data[place] ^= 0x15
    path.write_bytes(data)
    return 1


def _replace(make: Callable[[Path], object], path: Path) -> int:
    path.unlink()
    make(path)
    return 0


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(path.parent)  # a path of a socket is short
        try:
            sock.bind(path.name)
        finally:
            os.chdir(here)


DAMAGES: dict[str, Damage] = {
    "is whole": lambda path: 2,
    "has a wrong line at its end": partial(_append, b'{"type":"turn","junk":1}\n'),
    "has half a line at its end": partial(_append, b'{"type":"turn","num'),
    "has words at its end": partial(_append, b"Killed\n"),
    "has zeros at its end": partial(_append, bytes(4096)),
    "has bytes that are no text at its end": partial(_append, b"\xff\xfe\x80\n"),
    "has a nested line at its end": partial(_append, b"[" * 100_000 + b"\n"),
    "has a number without end at its end": partial(_append, b'{"type":"turn","n":' + b"9" * 10_000 + b"}\n"),
    "has 1e999 at its end": partial(_append, b'{"type":"turn","n":1e999}\n'),
    "has empty lines at its end": partial(_append, b"\n" * 1000),
    "has 100,000 wrong lines at its end": partial(_append, b'{"a":1}\n' * 100_000),
    "has a line of 20 MB at its end": partial(_append, b'"' + b"x" * (20 << 20) + b'"\n'),
    "has null at its end": partial(_append, b"null\n"),
    "has a list at its end": partial(_append, b"[1,2]\n"),
    "has its last line twice": partial(_lines, lambda ls: [*ls, ls[-1]], 2),
    "lacks its last line": partial(_lines, lambda ls: ls[:-1], 2),
    "lacks the end of its last line": partial(_lines, lambda ls: [*ls[:-1], ls[-1][:-20]], 2),
    "has Windows line ends": partial(_lines, lambda ls: [x.rstrip(b"\n") + b"\r\n" for x in ls], 2),
    "has a wrong line in its middle": partial(_lines, lambda ls: [*ls[:3], b"{}\n", *ls[3:]], 1),
    "has a wrong line behind its first": partial(_lines, lambda ls: [ls[0], b"{}\n", *ls[1:]], 0),
    "lacks its middle": partial(_lines, lambda ls: [ls[0], *ls[3:]], 0),
    "has its turns swapped": partial(_lines, lambda ls: [ls[0], *ls[3:], *ls[1:3]], 0),
    "lacks its first line": partial(_lines, lambda ls: ls[1:], 0),
    "has a wrong first line": partial(_lines, lambda ls: [b"{}\n", *ls[1:]], 0),
    "is empty": partial(_lines, lambda ls: [], 0),
    "was removed": partial(_replace, lambda path: None),
    "is a FIFO": partial(_replace, os.mkfifo),
    "is a directory": partial(_replace, os.mkdir),
    "is a socket": partial(_replace, _socket),
    "is a link to nothing": partial(_replace, lambda path: path.symlink_to("nowhere")),
    "is a link to itself": partial(_replace, lambda path: path.symlink_to(path.name)),
    "is a link to a device": partial(_replace, lambda path: path.symlink_to("/dev/zero")),
    **{f"is cut at a random place {seed}": partial(_cut, seed) for seed in range(12)},
    **{f"has a flipped second turn {seed}": partial(_flip, seed) for seed in range(10)},
}
STRANGERS: dict[str, Callable[[Path], object]] = {
    "a directory": lambda folder: (folder / "dir").mkdir(),
    "a directory with a journal's name": lambda folder: (folder / "task-x.jsonl").mkdir(),
    "a FIFO": lambda folder: os.mkfifo(folder / "fifo.jsonl"),
    "a file that is no journal": lambda folder: (folder / "notes.txt").write_text("x"),
    "a name that is no id": lambda folder: (folder / "..%2f\u202e.jsonl").write_text("{}\n"),
    "a name of 255 letters": lambda folder: (folder / ("a" * 249 + ".jsonl")).write_text("{}\n"),
    "a hole of 500 MB": lambda folder: os.truncate(_touched(folder / "hole.jsonl"), 500 << 20),
    "an unreadable file": lambda folder: _touched(folder / "closed.jsonl").chmod(0),
}


def _touched(path: Path) -> Path:
    path.touch()
    return path


def cases() -> Iterator[Shared]:
    """All damages with one restart; swapped journals; strange entries beside whole journals."""
    yield Shared("damaged journals of sessions", _damaged, len(DAMAGES))
    yield Shared("swapped journals of sessions", _swapped, 2)
    yield Shared("strange entries among the journals", _strange, len(STRANGERS))


def _damaged(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        names = {f"task-{number:08}": title for number, title in enumerate(DAMAGES)}
        for name in names:
            await turns(host, await host.open(name))
        replies = {name: replica.replies[2 * n : 2 * n + 2] for n, name in enumerate(names)}
        await host.stop()
        readable = {n: DAMAGES[title](host.folder / "sessions" / f"{n}.jsonl") for n, title in names.items()}
        await host.start()
        return [
            await part(f"a journal {title}", _kept(host, name, replies[name], readable[name]))
            for name, title in names.items()
        ]

    return hosted(folder, work)


async def _kept(host: SessionHost, name: str, replies: list[list[int]], readable: int) -> Outcome:
    rows = await rows_of(host, name)
    found = sampled(rows or [])
    whole = [[token for reply in replies[:count] for token in reply] for count in range(len(replies) + 1)]
    if found not in whole:
        return Outcome(doubled=1, note=f"{len(found)} ids that are no beginning of what was sampled")
    count = whole.index(found)
    return Outcome(lost=max(readable - count, 0), note=f"{count} turns of {readable} that can be read")


def _swapped(folder: Path) -> list[Part]:
    """Each journal has the other's name: neither gives the other's rows."""

    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        names = ["task-00000001", "task-00000002"]
        await turns(host, await host.open(names[0]), 1)
        await turns(host, await host.open(names[1]), 2)
        replies = {names[0]: replica.replies[0], names[1]: [*replica.replies[1], *replica.replies[2]]}
        await host.stop()
        one, other = (host.folder / "sessions" / f"{name}.jsonl" for name in names)
        shutil.move(one, host.folder / "kept")
        shutil.move(other, one)
        shutil.move(host.folder / "kept", other)
        await host.start()

        async def own(name: str) -> Outcome:
            status, body = await host.control("POST", f"/sessions/{name}/finish")
            found = sampled(body["rows"]) if status == 200 else []
            assert status == 200 or body["error"]["message"], "a refusal without a sentence"
            return Outcome(leaked=int(bool(found) and found != replies[name]), note="rows of another session")

        return [await part(f"journals of two sessions are swapped: {name[-1]}", own(name)) for name in names]

    return hosted(folder, work)


def _strange(folder: Path) -> list[Part]:
    async def work(host: SessionHost, replica: TokenReplica) -> list[Part]:
        found = []
        for number, (title, make) in enumerate(STRANGERS.items()):
            name = f"task-{number:08}"
            before = len(replica.replies)
            await turns(host, await host.open(name))
            await host.stop()
            make(host.folder / "sessions")
            await host.start()
            kept = _kept(host, name, replica.replies[before : before + 2], 2)
            found.append(await part(f"among the journals: {title}", kept))
        return found

    return hosted(folder, work)
