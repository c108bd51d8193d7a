"""Odd places, modes, limits and clocks: the run starts, survives a kill of its backend, and stops."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kit.runs import ToyRun

from fault_cases.base import Case, Outcome
from fault_cases.toys import backend, judged, kill, stopped, survives, toy_run, until_ready

ROOTS = {
    "spaces": "a run  with spaces",
    "unicode": "läufe-漢字-🙂",
    "bidirectional and zero-width": "a\u202eb\u200bc\ufeff",
    "control characters": "a\x1b[31m\x07b",
    "a newline": "a\nb",
    "quotes": "a'b\"c`d",
    "shell characters": "$(touch x);&|*?[a]{b}~#!",
    "a leading dash": "--now",
    "braces, which plans replace": "{run_dir}{port:http}",
    "percent and backslash": "%s%(x)s\\n",
    "a colon and a comma": "a:b,c",
    "very long": "/".join(["d" * 200] * 8),
    "many folders": "/".join("abcdefghijklmnopqrstuvwxyz" * 3),
}
UMASKS = (0o000, 0o002, 0o022, 0o027, 0o077)
LIMITS = {
    "64 descriptors": (resource.RLIMIT_NOFILE, 64),
    "256 descriptors": (resource.RLIMIT_NOFILE, 256),
    "no core files": (resource.RLIMIT_CORE, 0),
    "1 MB of stack": (resource.RLIMIT_STACK, 1 << 20),
    "no locked memory": (resource.RLIMIT_MEMLOCK, 0),
    "4 GB of address space": (resource.RLIMIT_AS, 4 << 30),
    "files of 1 MB": (resource.RLIMIT_FSIZE, 1 << 20),
    "no queued signals": (resource.RLIMIT_SIGPENDING, 0),
}
CLOCKS = {"an hour ahead": 3600, "a day ahead": 86_400, "ten years ahead": 315_360_000}
# Replaces the clock of every interpreter of the run; the file says by how many seconds.
STEPPED = """
import os, time
_real = time.time
def _stepped():
    try:
        with open(os.environ["LIVERL_FAULT_CLOCK"]) as file:
            return _real() + float(file.read() or 0)
    except (OSError, KeyError, ValueError):
        return _real()
time.time = _stepped
"""


def cases() -> Iterator[Case]:
    """Run roots, umasks, resource limits, clock steps in both directions."""
    for name, root in ROOTS.items():
        yield Case(f"run root: {name}", partial(_root, root))
    yield Case("run root: a link", _link)
    yield Case("run root: reached through a link to a link", partial(_link, twice=True))
    for mask in UMASKS:
        yield Case(f"umask {mask:03o}", partial(_umask, mask))
    for name, (limit, value) in LIMITS.items():
        yield Case(f"limit: {name}", partial(_limit, limit, value))
    for name, seconds in CLOCKS.items():
        for direction, word in ((1, "forward"), (-1, "back")):
            for moment in ("while it runs", "while the backend is dead"):
                yield Case(
                    f"clock steps {word}: {name}, {moment}", partial(_clock, direction * seconds, moment)
                )
    for name, extra in {
        "no HOME": {"HOME": ""},
        "C locale": {"LC_ALL": "C"},
        "no PATH": {"PATH": ""},
    }.items():
        yield Case(f"environment: {name}", partial(_environment, extra))
    yield Case("stdin, stdout and stderr are closed", _closed)


def _again(run: ToyRun) -> None:
    kill(backend(run))
    run.start()


def _root(root: str, folder: Path) -> Outcome:
    place = folder / root.lstrip("/")
    place.mkdir(parents=True)
    return survives(place, _again)


def _link(folder: Path, *, twice: bool = False) -> Outcome:
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")
    (folder / "second").symlink_to("link")
    return survives(folder / ("second" if twice else "link"), _again)


def _umask(mask: int, folder: Path) -> Outcome:
    with toy_run(folder, start=False) as run:  # others could not write it
        os.umask(mask)
        run.start()
        until_ready(run)
        _again(run)
        open_to_all = [
            path.name
            for path in run.run_dir.rglob("*")
            if path.name.startswith("secret") and stat.S_IMODE(path.lstat().st_mode) & 0o077
        ]
        assert not open_to_all, open_to_all
        return stopped(run, judged(run))


def _limit(limit: int, value: int, folder: Path) -> Outcome:
    _, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (value, hard))
    return survives(folder, _again)


def _clock(seconds: float, moment: str, folder: Path) -> Outcome:
    site, clock = folder / "site", folder / "clock"
    site.mkdir()
    (site / "sitecustomize.py").write_text(STEPPED)
    clock.write_text("0")
    os.environ["PYTHONPATH"] = os.pathsep.join((str(site), os.environ["PYTHONPATH"]))
    os.environ["LIVERL_FAULT_CLOCK"] = str(clock)

    def step(run: ToyRun) -> None:
        if moment == "while it runs":
            clock.write_text(str(seconds))
            _again(run)
        else:
            kill(backend(run))
            clock.write_text(str(seconds))
            run.start()

    return survives(folder, step)


def _environment(extra: dict[str, str], folder: Path) -> Outcome:
    os.environ.update(extra)
    return survives(folder, _again)


def _closed(folder: Path) -> Outcome:
    before: Callable[[int], None] = os.close
    for descriptor in (0, 1, 2):
        before(descriptor)
    with toy_run(folder) as run:
        _again(run)
        return stopped(run, judged(run))
