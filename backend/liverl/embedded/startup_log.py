"""The engine's log in vLLM's format: prefixes, timestamps, progress bars on standard error."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable

from liverl.version import __version__

_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR_WIDTH = 10  # tqdm's width if the terminal's is unknown

api_log = logging.getLogger("liverl.embedded.api")
core_log = logging.getLogger("liverl.embedded.core")
uvicorn_log = logging.getLogger("liverl.embedded.uvicorn")

BANNER = """
       █     █     █▄   ▄█
 ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}
  █▄█▀ █     █     █     █  model   {model}
   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀
"""


def engine_version() -> str:
    """Return the version that the engine reports."""
    return f"{__version__}+embedded"


class _Formatter(logging.Formatter):
    """Formats ``(APIServer pid=1) INFO 11-21 00:14:47 [file.py:1] text``, with the prefix on every line."""

    def __init__(self, prefix: str, *, plain: bool = False) -> None:
        super().__init__(datefmt="%m-%d %H:%M:%S")
        self._prefix, self._plain = prefix, plain

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if self._plain:
            head = f"{self._prefix} {record.levelname}:     "
        else:
            stamp = self.formatTime(record, self.datefmt)
            head = f"{self._prefix} {record.levelname} {stamp} [{record.filename}:{record.lineno}] "
        return "\n".join(head + line for line in text.split("\n"))


def configure() -> None:
    """Send the engine's loggers to standard output, with this process's pid in every prefix."""
    pid = os.getpid()
    for name, prefix, plain in (
        ("liverl.agents", f"(APIServer pid={pid})", False),
        ("liverl.embedded", f"(APIServer pid={pid})", False),
        (core_log.name, f"(EngineCore pid={pid})", False),
        (uvicorn_log.name, f"(APIServer pid={pid})", True),
        ("aiohttp", f"(APIServer pid={pid})", False),
    ):
        logger = logging.getLogger(name)
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(_Formatter(prefix, plain=plain))
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)


def bar_text(done: int, total: int, elapsed: float, unit: str = "it", *, rate: float | None = None) -> str:
    """Return tqdm's ``50%|█████     | 3/6 [00:20<00:20,  6.36s/it]``. ``elapsed``: seconds."""
    share = done / total if total else 1.0
    eighths = round(share * _BAR_WIDTH * 8)
    full, part = divmod(eighths, 8)
    bar = ("█" * full + (_BLOCKS[part] if part else "")).ljust(_BAR_WIDTH)
    return f"{share:4.0%}|{bar}| {done}/{total} [{_pace(done, total, elapsed, unit, rate)}]"


def _pace(done: int, total: int, elapsed: float, unit: str, rate: float | None = None) -> str:
    rate = rate if rate is not None else (done / elapsed if elapsed > 0 and done else None)
    if not rate:
        return f"{_clock(elapsed)}<?, ?{unit}/s"
    speed = f"{rate:5.2f}{unit}/s" if rate >= 1 else f"{1 / rate:5.2f}s/{unit}"
    return f"{_clock(elapsed)}<{_clock((total - done) / rate)}, {speed}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _progress(total: int, work: Callable[[int], None], text: Callable[[int, float], str]) -> None:
    prefix = f"(EngineCore pid={os.getpid()}) "
    started = time.monotonic()
    for done in range(total + 1):
        if done:
            work(done - 1)
        sys.stderr.write(f"{prefix}\r{text(done, time.monotonic() - started)}\n")
        sys.stderr.flush()
    sys.stderr.write(prefix + "\n")


def shards_progress(total: int, work: Callable[[int], None]) -> None:
    """Run ``work(i)`` for each shard with vLLM's loading bar."""
    _progress(
        total,
        work,
        lambda done, elapsed: (
            f"Loading safetensors checkpoint shards: {done / total:4.0%} Completed | "
            f"{done}/{total} [{_pace(done, total, elapsed, 'it')}]"
        ),
    )


def graphs_progress(mode: str, total: int, work: Callable[[int], None]) -> None:
    """Run ``work(i)`` for each warm-up size with vLLM's capturing bar."""
    _progress(
        total,
        work,
        lambda done, elapsed: f"Capturing CUDA graphs ({mode}): {bar_text(done, total, elapsed)}",
    )
