"""Fuzz the keeper: random requests, bytes, connections and descriptors, with checks that nothing is lost.

    PYTHONPATH=backend:tests python tests/bench/fuzz_keeper.py --seconds 3600 --seed 1

After each few steps the keeper must be the same process, its services must be alive and listed, a valid request must
be answered within ``DEADLINE`` seconds, and each service that has exited must have its file in ``exits/``. The first
failed check is printed with its seed and the last steps, and the exit code is 1. ``--keeper`` fuzzes another
script or directory, for example that of an earlier version.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import dataclasses
import json
import os
import random
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[2] / "backend/liverl/supervise/keeper/process"
DEADLINE = 30.0  # seconds for a valid request, on any of several connections
SERVICES = 3
CHECK_EVERY = 20  # steps
LIMIT_FILES = 256  # of the keeper: connections and descriptors run out
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        99_999_999,
        2**63,
        -(2**70),
        1e308,
        float("nan"),
        "",
        "x",
        "\0",
        "\ud800",
        "../x",
    ),
    *(
        [],
        {},
        [[]],
        [None],
        [1],
        {"": ""},
        {"a": 1},
        {"a=b": "c"},
        ["\0"],
        [""],
        "x" * 5000,
        "/",
        ".",
        "\u202e",
    ),
    *("0.0.0.0", "::1", "localhost", "no.such.host.invalid", "127.0.0.1"),
)


class BrokenError(Exception):
    """A check failed."""


@dataclasses.dataclass
class Report:
    """What was done: steps by kind, checks, services that exited, and the keeper's memory in MiB."""

    seed: int
    seconds: float = 0.0
    steps: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    checks: int = 0
    exits: int = 0
    slowest: float = 0.0  # seconds of a valid request
    first_memory: float = 0.0
    last_memory: float = 0.0

    def line(self) -> str:
        """One line for the user."""
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.steps.items()))
        return (
            f"seed {self.seed}: {sum(self.steps.values())} steps in {self.seconds:.0f} s ({kinds}); "
            f"{self.checks} checks, {self.exits} exits recorded, slowest answer {self.slowest:.2f} s, "
            f"memory {self.first_memory:.0f} -> {self.last_memory:.0f} MiB"
        )


class Fuzz:
    """A keeper with services in ``run_dir``, and steps against it."""

    def __init__(self, run_dir: Path, seed: int, program: Path = PROGRAM) -> None:
        self.run_dir = run_dir
        self.random = random.Random(seed)
        self.report = Report(seed)
        self.last: collections.deque[str] = collections.deque(maxlen=CHECK_EVERY + 1)
        self.kept: list[socket.socket] = []  # connections that stay open
        self.awaited: set[str] = set()  # tokens of services that exit
        self.count = 0
        self.log = open(run_dir / "keeper.log", "ab")  # noqa: SIM115 - closed in ``close``
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(run_dir)],
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (LIMIT_FILES, LIMIT_FILES))
        os.mkfifo(run_dir / "fifo")
        os.symlink("/etc/passwd", run_dir / "link")
        (run_dir / "folder").mkdir()
        self.services = [self.valid(self.spawn(f"service.{n}", "100000"))["pid"] for n in range(SERVICES)]
        self.valid({"do": "listen", "name": "p.http", "host": "127.0.0.1", "port": 0})
        self.report.first_memory = self.memory()
        self.kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "odd value": (10, self.odd_value),
            "changed bytes": (10, self.changed_bytes),
            "noise": (4, self.noise),
            "nesting": (2, self.nesting),
            "long line": (1, self.long_line),
            "half a request": (3, self.half),
            "reads nothing": (2, self.reads_nothing),
            "many connections": (2, self.storm),
            "descriptor": (5, self.descriptor),
            "odd log": (4, self.odd_log),
            "odd exit file": (1, self.odd_exit_file),
            "exit": (4, self.exits),
            "close": (4, self.close_some),
        }

    # --- requests ---

    def spawn(self, token: str, seconds: str = "0") -> dict[str, Any]:
        """A valid request for a service that lives so long."""
        env = {"PATH": os.environ["PATH"]}
        return {
            "do": "spawn",
            "token": token,
            "argv": ["sleep", seconds],
            "env": env,
            "cwd": str(self.run_dir),
            "log": "log",
            "fds": {},
        }

    def some_request(self) -> dict[str, Any]:
        """A valid request of a random kind."""
        self.count += 1
        return self.random.choice(
            (
                {"do": "hello"},
                {"do": "ends"},
                {"do": "exit"},
                {"do": "get_fd", "name": "p.http"},
                {"do": "close", "name": f"q.{self.random.randrange(4)}"},
                {"do": "forget", "token": f"x.{self.random.randrange(self.count)}"},
                {"do": "listen", "name": f"q.{self.random.randrange(4)}", "host": "127.0.0.1", "port": 0},
                self.spawn(f"x.{self.count}"),
            )
        )

    def connect(self) -> socket.socket:
        """A new connection; the answer of ``hello`` within DEADLINE is what counts, not a single connection."""
        give_up = time.monotonic() + DEADLINE
        while True:
            sock = socket.socket(socket.AF_UNIX)
            sock.setblocking(False)
            try:
                sock.connect(os.path.relpath(self.run_dir / "keeper.sock"))
            except OSError as error:
                sock.close()
                if self.process.poll() is not None:
                    raise BrokenError(f"the keeper exited with {self.process.returncode}") from None
                if time.monotonic() > give_up:
                    raise BrokenError(f"the keeper accepts no connection: {error}") from None
                time.sleep(0.01)
            else:
                return sock

    def put(self, sock: socket.socket, data: bytes, fds: list[int] | None = None) -> None:
        """Send as much as the socket takes within a second; errors are the keeper's right."""
        give_up = time.monotonic() + 1.0
        view = memoryview(data)
        with contextlib.suppress(OSError):
            while view and time.monotonic() < give_up:
                if not _ready(sock, select.POLLOUT, 0.05):
                    continue
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
                with contextlib.suppress(BlockingIOError):
                    view = view[sock.sendmsg([view], ancillary) :]
                    fds = None

    def keep_or_close(self, sock: socket.socket, chance: float = 0.2) -> None:
        """Keep the connection open for later steps, or read a little and close it."""
        if self.random.random() < chance:
            self.kept.append(sock)
            return
        if self.random.random() < 0.5 and _ready(sock, select.POLLIN, 0.02):
            with contextlib.suppress(OSError):
                self.drop_fds(sock)
        sock.close()

    @staticmethod
    def drop_fds(sock: socket.socket) -> None:
        """Read once and close received descriptors."""
        _, fds, _, _ = socket.recv_fds(sock, 1 << 16, 8)
        for fd in fds:
            os.close(fd)

    def valid(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a valid request, on new connections until it is answered. Raises BrokenError after DEADLINE seconds."""
        began = time.monotonic()
        while time.monotonic() < began + DEADLINE:
            with self.connect() as sock:
                self.put(sock, json.dumps({"id": "valid", **request}).encode() + b"\n")
                for line in self.lines(sock, began + DEADLINE):
                    answer = json.loads(line)
                    if answer.get("id") == "valid":
                        self.report.slowest = max(self.report.slowest, time.monotonic() - began)
                        if answer.get("error"):
                            raise BrokenError(f"{request['do']} was refused: {answer['error']}")
                        return dict(answer)
        raise BrokenError(f"{request['do']} was not answered within {DEADLINE:g} s")

    def lines(self, sock: socket.socket, give_up: float) -> Iterator[bytes]:
        """Received lines, until the connection ends or it is too late."""
        data = b""
        while time.monotonic() < give_up:
            if not _ready(sock, select.POLLIN, 0.5):
                if self.process.poll() is not None:
                    raise BrokenError(f"the keeper exited with {self.process.returncode}")
                continue
            try:
                chunk = sock.recv(1 << 16)
            except OSError:
                return
            if not chunk:
                return
            *whole, data = (data + chunk).split(b"\n")
            yield from whole

    # --- steps ---

    def odd_value(self) -> None:
        """A valid request with one value replaced, removed or nested."""
        request = {"id": self.count, **self.some_request()}
        key = self.random.choice(list(request))
        if self.random.random() < 0.1:
            del request[key]
        else:
            request[key] = self.random.choice(ODD)
        self.send(json.dumps(request).encode() + b"\n")

    def changed_bytes(self) -> None:
        """Valid requests with some bytes changed, removed, doubled or inserted."""
        data = bytearray()
        for _ in range(self.random.randint(1, 5)):
            data += json.dumps(self.some_request()).encode() + b"\n"
        for _ in range(self.random.randint(1, 8)):
            at = self.random.randrange(len(data))
            match self.random.randrange(4):
                case 0:
                    data[at] = self.random.randrange(256)
                case 1:
                    del data[at : at + self.random.randint(1, 9)]
                case 2:
                    data[at:at] = data[at : at + 20]
                case _:
                    data[at:at] = self.random.randbytes(4)
            data = data or bytearray(b"\n")
        self.send(bytes(data))

    def noise(self) -> None:
        """Random bytes, many short lines, or JSON that is no object."""
        parts = (
            b"\n" * 5000,
            b"[]\n",
            b"1\n",
            b"null\n",
            b'"x"\n' * 200,
            b"\xff\xfe\n",
            b"\0" * 70_000 + b"\n",
        )
        data = self.random.choice((self.random.randbytes(self.random.randint(1, 20_000)), *parts))
        self.send(data)

    def nesting(self) -> None:
        """JSON nested deeply, alone or in a value."""
        depth = self.random.choice((200, 1000, 10_000, 200_000))
        deep = self.random.choice((b"[", b'{"a":')) * depth
        self.send(self.random.choice((deep, b'{"do":"hello","id":' + deep)) + b"\n")

    def long_line(self) -> None:
        """More bytes than a line may have, or nearly as many."""
        size = self.random.choice((4 << 20, 5 << 20, 3 << 20))
        self.send(b'{"do":"hello","x":"' + b"x" * size + self.random.choice((b"", b'"}\n')))

    def half(self) -> None:
        """The first part of a request; the connection stays open."""
        data = json.dumps(self.some_request()).encode()
        sock = self.connect()
        self.put(sock, data[: self.random.randrange(1, len(data))])
        self.kept.append(sock)

    def reads_nothing(self) -> None:
        """Many requests from a client that reads no answer."""
        sock = self.connect()
        self.put(sock, b'{"do":"hello"}\n' * self.random.choice((100, 2000, 20_000)))
        self.kept.append(sock)

    def storm(self) -> None:
        """Many connections at once; some say something."""
        for _ in range(self.random.choice((20, 150, 300))):
            sock = socket.socket(socket.AF_UNIX)
            sock.setblocking(False)
            try:
                sock.connect(os.path.relpath(self.run_dir / "keeper.sock"))
            except OSError:
                sock.close()
                continue
            if self.random.random() < 0.2:
                self.put(sock, b'{"do":"hello"}\n')
            self.keep_or_close(sock, 0.5)

    def descriptor(self) -> None:
        """Descriptors of wrong kinds, with requests that take one and with others."""
        opened: list[int] = []
        for _ in range(self.random.choice((1, 1, 2, 8))):
            match self.random.randrange(6):
                case 0:
                    opened += os.pipe()
                case 1:
                    opened.append(os.open("/dev/null", os.O_RDONLY))
                case 2:
                    opened.append(socket.socket(socket.AF_UNIX).detach())
                case 3:
                    opened.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach())
                case 4:
                    opened.append(socket.socket(socket.AF_INET).detach())
                case _:
                    sock = socket.socket(socket.AF_UNIX)
                    sock.bind("")
                    sock.listen(1)
                    opened.append(sock.detach())
        request = self.random.choice(({"do": "adopt_fd", "name": "p.odd"}, self.some_request()))
        end = self.random.choice((b"\n", b"\n", b""))
        sock = self.connect()
        self.put(sock, json.dumps(request).encode() + end, opened)
        self.keep_or_close(sock)
        for fd in opened:
            os.close(fd)

    def odd_log(self) -> None:
        """A start whose log, directory or command is not what it should be."""
        self.count += 1
        request = self.spawn(f"odd.{self.count}")
        key = self.random.choice(("log", "log", "cwd", "argv"))
        path = self.random.choice(
            ("fifo", "link", "folder", "missing/x", "/dev/full", "/proc/self/mem", "keeper.sock")
        )
        request[key] = [path] if key == "argv" else path
        self.send(json.dumps(request).encode() + b"\n")

    def odd_exit_file(self) -> None:
        """Something lies where an exit status is written."""
        self.count += 1
        path = self.run_dir / "exits" / f"e.{self.count}.json.tmp"
        self.random.choice((lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/full")))()
        self.valid(self.spawn(f"e.{self.count}"))
        self.awaited.add(f"e.{self.count}")

    def exits(self) -> None:
        """A service that exits: its exit status must be recorded."""
        self.count += 1
        self.valid(self.spawn(f"e.{self.count}"))
        self.awaited.add(f"e.{self.count}")

    def close_some(self) -> None:
        """Close connections that were kept."""
        self.random.shuffle(self.kept)
        for sock in self.kept[len(self.kept) // 3 :]:
            sock.close()
        del self.kept[len(self.kept) // 3 :]

    def send(self, data: bytes) -> None:
        """Send bytes on a new connection or on one that was kept."""
        if self.kept and self.random.random() < 0.3:
            self.put(self.random.choice(self.kept), data)
            return
        sock = self.connect()
        self.put(sock, data)
        self.keep_or_close(sock)

    # --- checks ---

    def check(self) -> None:
        """Raise BrokenError unless the keeper and its services are as they should be."""
        self.report.checks += 1
        if self.process.poll() is not None:
            raise BrokenError(f"the keeper exited with {self.process.returncode}")
        hello = self.valid({"do": "hello"})
        if hello["pid"] != self.process.pid:
            raise BrokenError("another keeper answers")
        listed = {child["pid"] for child in hello["children"] if child["exit"] is None}
        for pid in self.services:
            if pid not in listed or not Path(f"/proc/{pid}").exists():
                raise BrokenError(f"the service with pid {pid} is lost")
        if "p.http" not in hello["listeners"]:
            raise BrokenError("the listening socket is lost")
        give_up = time.monotonic() + DEADLINE
        while self.awaited:
            token = next(iter(self.awaited))
            with contextlib.suppress(OSError):
                record = json.loads((self.run_dir / "exits" / f"{token}.json").read_text())
                if record["exit"]["code"] != 0:
                    raise BrokenError(f"{token} has exit {record['exit']}, expected code 0")
                self.awaited.discard(token)
                self.report.exits += 1
                self.valid({"do": "forget", "token": token})
                continue
            if time.monotonic() > give_up:
                raise BrokenError(f"the exit status of {token} was not written within {DEADLINE:g} s")
            time.sleep(0.01)
        for child in hello["children"]:
            if child["exit"] is not None:
                self.valid({"do": "forget", "token": child["token"]})

    def memory(self) -> float:
        """The keeper's resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def run(self, seconds: float, steps: int | None = None) -> Report:
        """Fuzz for so long, or for so many steps. Raises BrokenError at the first failed check."""
        began = time.monotonic()
        names = list(self.kinds)
        weights = [weight for weight, _ in self.kinds.values()]
        done = 0
        while time.monotonic() < began + seconds and (steps is None or done < steps):
            name = self.random.choices(names, weights)[0]
            self.last.append(name)
            self.report.steps[name] += 1
            self.kinds[name][1]()
            done += 1
            if done % CHECK_EVERY == 0:
                self.check()
        self.close_some()
        self.check()
        self.report.seconds = time.monotonic() - began
        self.report.last_memory = self.memory()
        return self.report

    def close(self) -> None:
        """End the keeper and everything below it."""
        for sock in self.kept:
            sock.close()
        below = [*self.services]
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            below += [int(pid) for pid in listed.split()]
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for pid in set(below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.log.close()


def _ready(sock: socket.socket, event: int, seconds: float) -> bool:
    """Whether a socket can be read or written within ``seconds``; ``select.select`` takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(seconds * 1000))


def main() -> int:
    """Fuzz by the command line's options; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=1, help="of the random steps (1)")
    parser.add_argument("--keeper", type=Path, default=PROGRAM, help="the program to fuzz (this version's)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-keeper-") as folder:
        fuzz = Fuzz(Path(folder), options.seed, options.keeper)
        try:
            print(fuzz.run(options.seconds).line())
        except BrokenError as error:
            print(f"BROKEN after {fuzz.report.line()}\n{error}\nlast steps: {', '.join(fuzz.last)}")
            print((Path(folder) / "keeper.log").read_text(errors="replace")[-3000:])
            return 1
        finally:
            fuzz.close()
        print((Path(folder) / "keeper.log").read_text(errors="replace")[-3000:], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
