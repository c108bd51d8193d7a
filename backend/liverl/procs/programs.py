"""What processes run, in words that hold no argument: arguments may be secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from liverl.procs import procfs

MOST = 20  # processes that are named
_PYTHON = re.compile(r"python[\d.]*|torchrun|accelerate|bash|sh|uv")


def programs(pids: Iterable[int]) -> tuple[str, ...]:
    """``python3 -m verl.trainer.main_ppo``, ``bash train.sh``, ``raylet`` of each living process, each once."""
    found: dict[str, None] = {}
    for pid in list(pids)[:MOST]:
        words = procfs.command_line(pid).split()
        if words and not words[0].startswith("["):
            found[program(words)] = None
    return tuple(found)


def program(words: list[str]) -> str:
    """The program of a command line: its name, and of an interpreter also the module or file that it runs."""
    name = os.path.basename(words[0].rstrip(":"))
    if _PYTHON.fullmatch(name) is None:
        return name
    rest = words[1:]
    for place, word in enumerate(rest):
        if word == "-m" and rest[place + 1 :]:
            return f"{name} -m {rest[place + 1]}"
        if word == "-c":
            return f"{name} -c"
        if not word.startswith("-"):
            return f"{name} {os.path.basename(word)}" if "=" not in word else name
    return name
