"""No search takes more than linear time, since it begins with a repetition that has no end: over the patterns of all
modules. One such line in a log kept ``doctor`` busy for a minute."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from kit import regexes

import liverl
import liverl_tui
from liverl.util.late_pattern import LatePattern

# Pattern -> what bounds the text that it searches
ALLOWED = {
    "liverl.causes.read.reading._RUNS": "a letter for each line, and what a run has taken it does not give back",
    "liverl.observe.live_logs.reader._NUMBERS": "480 characters of a message",
    "liverl.offline.doctor.kinds._OWN_LOG": "the name of a file",
    "liverl.offline.doctor.kinds._RAY_NAMES": "the name of a file",
    "liverl.util.redact._FORMS": "matched where a name begins",
    "liverl.util.secret_names._WORD": "another alternative takes the whole run",
    "liverl_tui.text.words._NUMBERS": "the name of a service",
}
SEARCHES = r"\.(?:search|finditer|findall|sub|subn|split)\("
FORMS = (re.Pattern, LatePattern)
LEAST = 300  # patterns that are looked at; fewer means that they are no longer found


def patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value of a module, also in its tables."""
    if isinstance(value, FORMS):
        yield value
    elif depth < 4 and isinstance(value, dict):
        for key, one in value.items():
            yield from patterns(key, depth + 1)
            yield from patterns(one, depth + 1)
    elif depth < 4 and isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from patterns(one, depth + 1)


def modules() -> Iterator[ModuleType]:
    """All modules of ours that can be imported here: those of other environments are left out."""
    for package in (liverl, liverl_tui):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not re.search(r"runtime|__main__|liverl_keeper", found.name):
                try:
                    yield importlib.import_module(found.name)
                except ImportError:  # of another environment: ray, verl, harbor
                    continue


def searched() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """The patterns with which a module searches, by their names, and all of its tables."""
    for module in modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            alone = isinstance(value, FORMS)
            if not alone or re.search(rf"\b{name}{SEARCHES}", source):
                yield from ((f"{module.__name__}.{name}", one) for one in patterns(value))


def test_no_search_begins_with_a_repetition_without_end() -> None:
    found = list(searched())
    assert len(found) > LEAST
    slow = {name: one.pattern for name, one in found if regexes.begins_without_end(one.pattern, one.flags)}
    assert {name: pattern for name, pattern in slow.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) <= set(slow), "allowed, and no longer needed"


@pytest.mark.parametrize(
    ("pattern", "slow"),
    [
        (r"\w*Actor", True),
        (r"[\w.-]*\d", True),
        (r"x?\s+y", True),
        (r"(?:\d+|a)z", True),
        (r"\b[\w-]*\d", True),
        (r"\b\w+=", False),
        (r"(?<!\w)\w+-", False),
        (r"\A\s*x", False),
        (r"a\w*z", False),
        (r"\w+", False),
        (r"x{0,9}y", False),
    ],
)
def test_what_the_rule_finds(pattern: str, slow: bool) -> None:
    assert regexes.begins_without_end(pattern) is slow
