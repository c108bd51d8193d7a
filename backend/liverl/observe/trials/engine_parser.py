"""The tool-call parser that the engines of a run use, and where it is set.

A launch script starts the engines itself: LiveRL's has their options in ``harbor_verl_*.yaml`` (``tool-call-parser``)
and in ``agent_loop_config*.yaml`` (``tool_parser``). What stands there counts, not a default of ours.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from liverl.engines.tool_formats import PARSER_KEY
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import Undecodable, decode_json, decode_yaml
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import read_regular

FILES = ("harbor_verl_*.yaml", "agent_loop_config*.yaml", "harbor_verl_*.yml", "agent_loop_config*.yml")
# LiveRL's variables for it, see ``config.env_vars``.
VARIABLES = ("HARBOR_TOOL_PARSER", "TOOL_CALL_PARSER")
_DEEPEST = 5  # folders below the script's own: repos/harbor-verl-train/configs/train/...
_MOST_FOLDERS = 2000
_LARGEST = 1 << 20  # bytes of such a file
# Without configuration, and large.
_SKIPPED = (
    *("harbor_trials", "trials", "logs", "checkpoints", "wandb", "outputs"),
    *("node_modules", "__pycache__", "site-packages"),
)
_LINE = late_pattern(
    r"""^\s*(?:-\s+)?["']?(?:tool[-_]call[-_]parser|tool[-_]parser)["']?\s*:\s*(?P<value>[^#\n]*)"""
)
_DEFAULT = late_pattern(rf"(?:{'|'.join(VARIABLES)})\s*(?::-|:=|-|,)\s*[\"']?([\w-]+)")
_NAME = late_pattern(r"[A-Za-z][\w-]*")


class Place(msgspec.Struct, frozen=True):
    """A line that sets the parser. ``parser``: its value, "" = only from a variable; ``variable``: it takes LiveRL's
    variable if that is set. Line 0: the file could not be read."""

    path: str
    line: int
    parser: str
    variable: bool = False

    @property
    def unread(self) -> bool:
        """Whether it is not known what the file sets."""
        return self.line == 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class EngineParser(msgspec.Struct, frozen=True):
    """``name``: None if it is not known. ``place``: file and line of a launch script's own, or what else sets it, "" =
    PARSER_KEY sets it. ``variable``: that line takes LiveRL's variable, so that PARSER_KEY sets it as well."""

    name: str | None = None
    place: str = ""
    variable: bool = False


def engine_parser(run_dir: str | os.PathLike[str]) -> EngineParser:
    """The parser of a run, from its configuration and the files of its launch script."""
    try:
        settings = decode_yaml(read_regular(Path(run_dir) / "config.yaml"))
    except (OSError, Undecodable):
        return EngineParser()
    configured = _text(settings, PARSER_KEY)
    if _text(settings, "trainer.kind") != "command":
        return EngineParser(configured)
    given = _given(Path(run_dir) / "plan.json")
    parser = configured if given is None or PARSER_KEY in given else None
    folder = _text(settings, "trainer.cwd")
    return in_script(places(folder) if folder else (), parser)


def in_script(found: Iterator[Place] | tuple[Place, ...] | list[Place], given: str | None) -> EngineParser:
    """The parser of a launch script with these places. ``given``: what it gets from its user by LiveRL's variables.
    Where one of its files could not be read, it is not known."""
    found = list(found)
    if any(place.unread for place in found):
        return EngineParser()
    each = [(given if place.variable and given else place.parser, place) for place in found]
    known = [(name, place) for name, place in each if name]
    names = {name for name, _ in known}
    if len(names) == 1:
        # The options of the engine come before those of the agent loop.
        name, place = next(((n, p) for n, p in known if "harbor_verl_" in p.path), known[0])
        return EngineParser(name, str(place), place.variable)
    return EngineParser(None if names else given)


def places(folder: str) -> list[Place]:
    """Every line below ``folder`` that sets the parser, by path."""
    return [place for path in sorted(_files(folder)) for place in _lines(path)]


def _files(folder: str) -> Iterator[str]:
    for top, inside, names in itertools.islice(os.walk(folder), _MOST_FOLDERS):
        depth = os.path.relpath(top, folder).count(os.sep) + (top != folder)
        inside[:] = (
            [] if depth >= _DEEPEST else sorted(n for n in inside if n not in _SKIPPED and n[:1] != ".")
        )
        for pattern in FILES:
            yield from (os.path.join(top, name) for name in fnmatch.filter(names, pattern))


def _lines(path: str) -> Iterator[Place]:
    try:
        text = read_regular(path, _LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return  # removed meanwhile
    except OSError:
        yield Place(path, 0, "")
        return
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE.match(line)
        value = match["value"].strip().strip("\"'") if match is not None else ""
        if not value or value in ("null", "~"):
            continue
        if any(name in value for name in VARIABLES):
            default = _DEFAULT.search(value)
            yield Place(path, number, default[1] if default is not None else "", variable=True)
        elif _NAME.fullmatch(value):
            yield Place(path, number, value)


def _text(settings: Any, key: str) -> str | None:
    for name in key.split("."):
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings if isinstance(settings, str) and settings else None


def _given(plan: Path) -> dict[str, str] | None:
    """The keys that the user has given, as ``plan.json`` says; None if it does not."""
    try:
        script = decode_json(read_regular(plan))["script"]
        given = script["given"]
    except (OSError, LookupError, TypeError, *BAD_JSON):
        return None
    return given if isinstance(given, dict) else None
