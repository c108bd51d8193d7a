"""A program on a real pseudo terminal, and the screen that a person would see.

Output is read by a thread as it comes, counted and dated; the emulation runs only when somebody looks, so that
it does not disturb what is measured.
"""

from __future__ import annotations

import copy
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyte

from kit.waiting import PATIENCE_S

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "space": " ",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "f1": "\x1bOP",
    "ctrl+c": "\x03",
    "ctrl+d": "\x04",
    "ctrl+p": "\x10",
}
# The protocol of kitty for keys, which the emulator would print instead of passing it over.
_KITTY = re.compile(rb"\x1b\[[<>=][0-9;]*u")
RAW_BYTES = 1 << 18
SLOW_READ_S = 0.02  # of a slow line, between two reads
_ALTERNATE = 1049  # DEC's private mode: the screen of full-screen programs
# What would make the program under test behave differently on the machine of whoever runs it.
NOT_INHERITED = (
    *("SSH_CONNECTION", "SSH_TTY", "TMUX", "STY", "NO_COLOR", "COLUMNS", "LINES"),
    "PYTHONDONTWRITEBYTECODE",  # without bytecode every start compiles Textual: twice as long
)


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of a program on a local terminal with colours."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_INHERITED and not name.startswith(("SLURM_", "LIVERL_", "TEXTUAL"))
    }
    return {**env, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8", **more}


class Screen(pyte.Screen):
    """With an alternate screen: what was there before a full-screen program is there after it again."""

    def set_mode(self, *modes: int, **how: Any) -> None:
        if how.get("private") and _ALTERNATE in modes:
            self._before = copy.deepcopy(self.buffer), copy.copy(self.cursor)
            self.erase_in_display(2)
        super().set_mode(*modes, **how)

    def reset_mode(self, *modes: int, **how: Any) -> None:
        super().reset_mode(*modes, **how)
        if how.get("private") and _ALTERNATE in modes:
            self.buffer, self.cursor = self._before


class Terminal:
    """``with Terminal([...]) as terminal: terminal.wait_for("ready"); terminal.press("q")``.

    The program is the leader of a session of its own and the terminal is its controlling one: closing it is
    what a lost ssh connection does.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        size: tuple[int, int] = (80, 24),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        tap: Callable[[float, bytes], object] | None = None,
        rate: float | None = None,
    ) -> None:
        """``size``: columns and rows. ``env``: the whole environment; by default ``clean_environment()``. ``tap``: gets
        each piece of output with the monotonic time of its arrival, in another thread. ``rate``: bytes a second that
        the line carries, behind the 8 KiB that the kernel keeps; None: as many as come."""
        self._tap = tap
        self._rate = rate
        self.bytes = 0  # sent by the program so far
        self.raw = b""  # the newest of them, ``RAW_BYTES`` at most
        self.screen = Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self._waiting: deque[tuple[float, bytes]] = deque()  # not emulated yet, with the time of arrival
        self._news = threading.Condition()
        self._ended = False  # nobody has the other end open
        self._master, slave = pty.openpty()
        self._set_size(*size)
        # A session leader without a terminal gets the first one that it opens.
        script = 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>&1'
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", os.ttyname(slave), *(os.fspath(word) for word in argv)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env) if env is not None else clean_environment(),
            cwd=cwd,
            start_new_session=True,
        )
        self._hang_up, self._hanging_up = os.pipe()
        self._slave: int | None = slave  # kept until the program has opened it, else the first read fails
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # -- looking

    def _read(self) -> None:
        most = 65536 if self._rate is None else max(1, round(self._rate * SLOW_READ_S))
        while True:
            # A terminal that somebody reads stays open: hang_up has to be able to end this first.
            if self._hang_up in select.select([self._master, self._hang_up], [], [])[0]:
                return
            try:
                data = os.read(self._master, most)
            except OSError:
                data = b""
            if self._rate is not None:
                time.sleep(len(data) / self._rate)
            if data and self._tap is not None:
                self._tap(time.monotonic(), data)
            with self._news:
                if data:
                    self.bytes += len(data)
                    self.raw = (self.raw + data)[-RAW_BYTES:]
                    self._waiting.append((time.monotonic(), data))
                else:
                    self._ended = True
                self._news.notify_all()
            if not data:
                return
            self._let_go()

    def _let_go(self) -> None:
        slave, self._slave = self._slave, None
        if slave is not None:
            os.close(slave)

    def _emulate(self) -> float | None:
        """Take in one piece of output; when it arrived."""
        with self._news:
            if not self._waiting:
                return None
            at, data = self._waiting.popleft()
        self._stream.feed(_KITTY.sub(b"", data))
        return at

    @property
    def lines(self) -> list[str]:
        """The screen's rows, without the blanks at their ends."""
        while self._emulate() is not None:
            pass
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(
        self, wanted: str | Callable[[str], object], seconds: float = PATIENCE_S, what: str | None = None
    ) -> float:
        """Wait until the screen shows a text, or a function of its text is true. Returns the seconds from the
        start of the program to the arrival of the output that made it so.

        Raises:
            AssertionError: it does not come in time, or the program has ended without it.
        """
        deadline = time.monotonic() + seconds
        holds = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        at: float | None = time.monotonic()
        while True:
            if at is not None and holds("\n".join(line.rstrip() for line in self.screen.display)):
                return at - self.started_at
            at = self._emulate()
            if at is None:
                with self._news:
                    over = self._ended or time.monotonic() > deadline
                    if not self._waiting and not over:
                        self._news.wait(max(0.0, deadline - time.monotonic()))
                assert not over, (
                    f"{what or wanted!r} did not come within {seconds:g} s; the screen:\n{self.text}"
                )

    # -- acting

    def send(self, data: str | bytes) -> None:
        """Type characters as they are."""
        os.write(self._master, data.encode() if isinstance(data, str) else data)

    def press(self, *keys: str) -> None:
        """Press keys: single characters, or names of ``KEYS``."""
        for key in keys:
            self.send(KEYS.get(key, key))

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """As when the window changes; the kernel sends SIGWINCH."""
        _ = self.lines  # what was sent for the old size belongs on the old screen
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        self.process.send_signal(number)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The program's exit code, once it has ended; negative: the signal that ended it.

        Raises:
            AssertionError: it has not.
        """
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:g} s; the screen:\n{self.text}") from None
        self._let_go()
        self._reader.join(2.0)  # what it said at the end is still read
        return code

    def hang_up(self) -> None:
        """Take the terminal away, as a lost ssh connection does."""
        if self._master < 0:
            return
        os.close(self._hanging_up)
        self._reader.join()
        self._let_go()
        os.close(self._hang_up)
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        """End the program if it still runs, and free everything."""
        if self.running:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
