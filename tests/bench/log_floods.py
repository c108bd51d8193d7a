"""Floods of logs in which no two lines are alike, as programs write them: of their numbers, times, addresses and ids
all differ. Each is endless, in pieces of whole lines."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

LINES = 2000  # of a piece
_EIGHTHS = " ▏▎▍▌▋▊▉"
_RAY = "\x1b[36m(TaskRunner pid=123)\x1b[0m "
_WORDS = ("upload", "download", "sandbox", "reward", "tool call", "rollout", "connection", "tokenizer")


def bar(name: str, done: int, total: int, seconds: float, unit: str = "it") -> str:
    """A bar as tqdm draws it, ten columns wide."""
    share = done / total
    whole, part = divmod(int(share * 80), 8)
    drawn = ("█" * whole + (_EIGHTHS[part] if whole < 10 else ""))[:10].ljust(10)
    rate = (done + 0.37) / max(seconds, 0.01)
    speed = f"{rate:5.2f}{unit}/s" if rate > 1 else f"{1 / rate:5.2f}s/{unit}"
    left = (total - done) / max(rate, 0.001)
    return f"{name}: {share:4.0%}|{drawn}| {done}/{total} [{_clock(seconds)}<{_clock(left)}, {speed}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def _bars(name: str, total: int, unit: str = "it") -> Iterator[str]:
    """Bars that are filled again and again, each time at another speed."""
    dice = random.Random(7)
    while True:
        seconds, each = 0.0, dice.uniform(0.05, 40)
        for done in range(total + 1):
            yield bar(name, done, total, seconds, unit)
            seconds += each * dice.uniform(0.5, 1.5)


def _joined(lines: Iterator[str]) -> Iterator[bytes]:
    while True:
        yield "".join(next(lines) for _ in range(LINES)).encode()


def training_bars() -> Iterator[bytes]:
    """verl's bar in a file of its own: each on a line."""
    return _joined(f"{one}\n" for one in _bars("Training Progress", 4000))


def ray_bars() -> Iterator[bytes]:
    """verl's bar under Ray, which begins a line before the carriage return of each."""
    return _joined(f"{_RAY}\r{one}\n" for one in _bars("Training Progress", 4000))


def overwritten_bars() -> Iterator[bytes]:
    """vLLM's bars, each overwriting the one before it: a line for each 120."""
    bars = _bars("Processed prompts", 119, "it")
    names = (f"{one}, est. speed input: {n % 977}.{n % 97} toks/s" for n, one in enumerate(bars))
    ends = (f"\r{one}" + "\n" * (n % 120 == 119) for n, one in enumerate(names))
    return _joined(ends)


def one_line_of_bars() -> Iterator[bytes]:
    """A bar that is overwritten forever, without a newline."""
    return _joined(f"\r{one}" for one in _bars("Loading weights", 4000))


def json_lines() -> Iterator[bytes]:
    """What structlog, LiteLLM and vLLM write with JSON as their format: many messages, with times and ids."""
    return _joined(_json_lines())


def _json_lines() -> Iterator[str]:
    dice, number = random.Random(7), 0
    while True:
        number += 1
        at = f"2026-11-{1 + number // 86400 % 28:02}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        word, kind = dice.choice(_WORDS), number % 4
        if kind == 0:
            fields = {
                "event": f"{word} {number} is done",
                "trial": f"{dice.getrandbits(64):016x}",
                "seconds": dice.random(),
            }
            line = {**fields, "level": "info", "timestamp": f"{at}.{number % 1000:03}Z"}
        elif kind == 1:
            words = (
                f"POST Request Sent from LiteLLM: curl -X POST http://127.0.0.1:{dice.randrange(65536)}/v1/"
            )
            line = {"message": words, "level": "DEBUG", "timestamp": f"{at}.{dice.randrange(10**6):06}"}
        elif kind == 2:
            line = {
                "levelname": "INFO", "asctime": f"{at.replace('T', ' ')},{number % 1000:03}", "name": "vllm.engine",
                "message": f"Added request chatcmpl-{dice.getrandbits(128):032x}.", "lineno": dice.randrange(900),
            }  # fmt: skip
        else:
            line = {
                "level": "warning",
                "event": f"{word} {dice.randrange(9999)} is slow",
                "attempt": dice.randrange(9),
            }
        yield json.dumps(line) + "\n"


def errors() -> Iterator[bytes]:
    """Bare lines of which each has the word of an error and other numbers."""
    return _joined(_errors())


def _errors() -> Iterator[str]:
    dice = random.Random(7)
    while True:
        yield f"ERROR {dice.choice(_WORDS)} {dice.randrange(10**6)} failed\n"
        at, seconds = f"0x{dice.getrandbits(48):012x}", f"{dice.random():.3f}"
        yield f"{dice.choice(_WORDS)} {dice.randrange(10**6)}: error {at} after {seconds} s\n"


def tracebacks() -> Iterator[bytes]:
    """Whole tracebacks which differ in their numbers, addresses and ids."""
    return _joined(_tracebacks())


def _tracebacks() -> Iterator[str]:
    dice = random.Random(7)
    while True:
        line, place, key = dice.randrange(2000), dice.getrandbits(48), dice.getrandbits(64)
        yield (
            f"Task exception was never retrieved in <Task {dice.randrange(10**6)} at 0x{place:012x}>\n"
            "Traceback (most recent call last):\n"
            f'  File "/opt/app/agent/loop_{dice.randrange(9)}.py", line {line}, in run_trial\n'
            f"    result = await session_{dice.randrange(99)}.request(\n"
            "             ^^^^^^^^^^^^^^^^^^^^^^^^\n"
            f'  File "/opt/app/agent/tools.py", line {line + 7}, in request\n'
            "    raise ToolError(message)\n"
            f"agent.tools.ToolError: tool of trial {key:016x} gave {dice.randrange(10**4)} bytes\n"
        )


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "progress bars, a line each": training_bars,
    "progress bars under Ray": ray_bars,
    "progress bars that overwrite each other": overwritten_bars,
    "progress bars without a newline": one_line_of_bars,
    "lines in JSON": json_lines,
    "lines with the word of an error": errors,
    "tracebacks that differ in their numbers": tracebacks,
}
