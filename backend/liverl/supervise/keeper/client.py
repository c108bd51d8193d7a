"""The backend's client of the keeper: connects to it or starts it, and sends requests as coroutines."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from liverl.model import Exit
from liverl.procs.open_files import raise_limit
from liverl.util.checked_path import open_checked
from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import open_append, read_text

_PROGRAM = Path(__file__).with_name("process")  # a directory with a __main__.py
_BUSY = 10.0  # seconds for a keeper to accept the connections that came before ours


class KeeperError(Exception):
    """The keeper refused a request; the message says why. ``errno`` is that of a system call
    that failed in the keeper; None if the answer named none."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class KeeperGone(Exception):
    """The connection to the keeper has ended."""


def exit_of(record: dict[str, Any] | None) -> Exit:
    """The exit in a keeper's record. Without a record the exit status is unknown: all fields of ``Exit`` are None."""
    if not record:
        return Exit()
    return Exit(code=record.get("code"), signal=record.get("signal"), at=record.get("at"))


class KeeperClient:
    """A connection to a run's keeper.

    ``on_exit(token, exit)`` is called for every leader that ends, ``on_gone()`` once when the connection ends because
    the keeper has exited. ``pid`` is the keeper's, 0 before the first connection."""

    def __init__(
        self, run_dir: Path, on_exit: Callable[[str, Exit], None], on_gone: Callable[[], None]
    ) -> None:
        self.run_dir = run_dir
        self.pid = 0
        self._on_exit = on_exit
        self._on_gone = on_gone
        self._sock: socket.socket | None = None
        self._buffer = b""
        self._fds: list[int] = []
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last_id = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._sending = asyncio.Lock()  # a request longer than the socket's buffer is sent in several parts

    async def connect(self, environment: dict[str, str]) -> tuple[bool, list[dict[str, Any]], dict[str, int]]:
        """Connect to the run's keeper; start one with ``environment`` if none is running.

        Returns (whether it was already running, its children's records, its listening ports by name).

        Raises:
            KeeperError: it could not be started, accepts no connection, or another user serves the socket.
            KeeperGone: it exited before it answered.
            OSError: its log cannot be written, or the process cannot be created.
        """
        self.close()
        already_running = await self._open()
        if not already_running:
            await asyncio.get_running_loop().run_in_executor(None, self._launch, environment)
            if not await self._open():
                raise KeeperError("the keeper was started but cannot be reached")
        assert self._sock is not None
        credentials = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", credentials)
        if uid not in (os.geteuid(), 0):
            raise KeeperError(f"the keeper's socket is served by another user (uid {uid})")
        self.pid = pid
        asyncio.get_running_loop().add_reader(self._sock, self._readable)
        hello = await self.request("hello")
        self.pid = hello["pid"]
        raise_limit(self.pid)  # services inherit it; where it is refused, the preflight check has warned
        return already_running, hello["children"], hello["listeners"]

    async def _open(self) -> bool:
        """Connect to the socket, without waiting in the kernel. Returns False if nobody listens on it.

        Raises:
            KeeperError: other connections wait before ours, and the keeper accepts none.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + _BUSY
        while True:
            try:
                self._sock = _connected(self.run_dir)
                return True
            except BlockingIOError:
                if loop.time() > give_up:
                    raise KeeperError(
                        f"the keeper has accepted no connection for {_BUSY:g} s; see keeper.json for its pid, "
                        "and end that process if it hangs (its services keep running)"
                    ) from None
                await asyncio.sleep(0.05)
            except OSError:
                return False

    def _launch(self, environment: dict[str, str]) -> None:
        with os.fdopen(open_append(self.run_dir / "keeper.log"), "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(self.run_dir)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        with self._process.stdout as out:
            first_line = out.readline()
        if first_line.strip() != b"ready":
            tail = read_text(self.run_dir / "keeper.log", errors="replace").strip().splitlines()[-1:]
            raise KeeperError(f"the keeper did not start: {' '.join(tail) or 'no message'}")

    async def request(self, do: str, *, fd: int | None = None, **args: Any) -> dict[str, Any]:
        """Send the request ``do`` with its arguments and return the answer; ``fd`` is sent along (SCM_RIGHTS).

        Raises:
            KeeperError: the keeper refused.
            KeeperGone: there is no connection, or the keeper died before it answered.
        """
        if self._sock is None:
            raise KeeperGone
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        data = json.dumps({"id": number, "do": do, **args}).encode() + b"\n"
        try:
            async with self._sending:
                if self._sock is None or future.done():
                    pass  # the keeper died while we waited for the lock; the future holds KeeperGone
                elif fd is not None:
                    socket.send_fds(self._sock, [data], [fd])
                else:
                    await asyncio.get_running_loop().sock_sendall(self._sock, data)
        except OSError:
            self._waiting.pop(number, None)
            raise KeeperGone from None
        answer = await future
        if answer.get("error"):
            raise KeeperError(answer["error"], answer.get("errno"))
        return answer

    async def get_listener(self, name: str) -> int:
        """A duplicate of the listening socket ``name`` that the keeper holds. The caller must close the descriptor.

        Raises:
            KeeperError: it holds no socket of that name.
            KeeperGone: it died before it answered.
        """
        await self.request("get_fd", name=name)
        return self._fds.pop(0)

    def _readable(self) -> None:
        assert self._sock is not None
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 4, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        self._fds += fds
        if not data:
            self.close()
            self._on_gone()
            return
        self._buffer += data
        while b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            message = decode_loose_json(line)
            if "exit" in message and "id" not in message:
                child = message["exit"]
                self._on_exit(child["token"], exit_of(child["exit"]))
            else:
                future = self._waiting.pop(message["id"], None)
                if future is not None and not future.done():
                    future.set_result(message)

    def close(self) -> None:
        """Close the connection; the keeper keeps running. Pending requests raise KeeperGone."""
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock)
            self._sock.close()
            self._sock = None
        self._buffer = b""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(KeeperGone())
        self._waiting.clear()

    def reap(self) -> None:
        """Collect the keeper's own exit status, if it was started by this process and has ended."""
        if self._process is not None:
            self._process.poll()


def _connected(run_dir: Path) -> socket.socket:
    """A socket that is connected to the keeper of ``run_dir``.

    Raises:
        BlockingIOError: as many connections wait for the keeper as its socket holds.
        OSError: nobody listens there.
    """
    directory = open_checked(run_dir, os.O_PATH | os.O_DIRECTORY)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(f"/proc/self/fd/{directory}/keeper.sock")
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(directory)
    return sock
