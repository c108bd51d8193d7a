"""One browser's interface: a process of its own on a pseudo terminal. What it draws are the bytes of a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

CHUNK = 1 << 16  # bytes that are read at a time
MOST_CELLS = 1000  # columns or rows of a terminal that a browser may ask for
END_S = 5.0  # seconds that the process gets after its terminal has gone
# What a browser's terminal can do; what this process's own terminal can do says nothing about it.
_TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
_OTHERS = ("TMUX", "STY", "SSH_TTY", "SSH_CONNECTION", "COLUMNS", "LINES", "TERM_PROGRAM", "VTE_VERSION")
# Run by the new process: the terminal becomes its own, and the command takes its place.
_ATTACH = "import os, sys; os.login_tty(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"


class Session:
    """A command on a pseudo terminal; ``await Session.start(...)``, then ``read`` until it returns nothing."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master  # -1: closed
        self._process = process
        self._readable = asyncio.Event()
        self.sent = 0  # bytes that the command has drawn so far
        asyncio.get_running_loop().add_reader(master, self._readable.set)

    @classmethod
    async def start(cls, command: Sequence[str], columns: int, rows: int) -> Session:
        """Start ``command``, whose first word is the path of a program.

        Raises:
            OSError: there is no terminal left, or the command cannot be started.
        """
        master, slave = pty.openpty()
        try:
            _set_size(slave, columns, rows)
            os.set_blocking(master, False)
            env = {name: value for name, value in os.environ.items() if name not in _OTHERS}
            process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-I", "-S", "-c", _ATTACH, str(slave), *command],
                stdin=subprocess.DEVNULL,
                env={**env, **_TERMINAL},
                pass_fds=(slave,),
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(master, process)

    async def read(self) -> bytes:
        """What it has drawn since; empty at its end."""
        while True:
            try:
                data = os.read(self._master, CHUNK)
            except BlockingIOError:
                self._readable.clear()
                await self._readable.wait()
                continue
            except OSError:  # nobody has the other end open
                return b""
            self.sent += len(data)
            return data

    def write(self, data: bytes) -> None:
        """Keys of the browser. What the terminal cannot take at once is lost, as on a terminal that hangs."""
        with contextlib.suppress(OSError):
            os.write(self._master, data)

    def resize(self, columns: int, rows: int) -> None:
        """The browser's window has another size now."""
        with contextlib.suppress(OSError):
            _set_size(self._master, columns, rows)

    async def close(self) -> None:
        """Take the terminal away, as a closed window does; the command detaches from its run, and is killed if it does
        not end in time."""
        master, self._master = self._master, -1  # its number may be another file's from now on
        if master == -1:
            return
        asyncio.get_running_loop().remove_reader(master)
        self._readable.set()
        os.close(master)
        try:
            await asyncio.to_thread(self._process.wait, END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)


def _set_size(terminal: int, columns: int, rows: int) -> None:
    columns, rows = (min(max(1, number), MOST_CELLS) for number in (columns, rows))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def program(*arguments: str) -> list[str]:
    """The command line of this program with ``arguments``, by the interpreter that runs it now."""
    return [sys.executable, "-m", "liverl_tui", *arguments]
