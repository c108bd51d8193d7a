"""Each failure that is known of the stack is found by a signature, a rule or a check, or is excused with a reason."""

from __future__ import annotations

import importlib.util
import re

from kit.coverage_table import KNOWN, failures

from liverl.causes.catalogue import by_id
from liverl.diagnose.catalogue.rules import RULES

FAILURES = failures()
BY_ID = by_id()


def test_every_known_failure_has_its_row() -> None:
    wanted = [f"{letter}{number}" for letter, count in KNOWN.items() for number in range(1, count + 1)]
    assert sorted(FAILURES) == sorted(wanted)


def test_a_failure_is_found_or_excused() -> None:
    assert [name for name, one in FAILURES.items() if bool(one.by) == bool(one.unseen)] == []
    reasons = {name: one.unseen for name, one in FAILURES.items() if one.unseen}
    assert {name: why for name, why in reasons.items() if not re.fullmatch(r"\S.{20,}\.", why)} == {}


def test_what_finds_a_failure_exists() -> None:
    rules = {rule.look.__name__ for rule in RULES}
    wrong = []
    for name, one in FAILURES.items():
        wrong += [(name, found) for found in one.named("") if found not in BY_ID]
        wrong += [(name, found) for found in one.named("rule") if found not in rules]
        wrong += [
            (name, found) for found in one.named("check") if not importlib.util.find_spec(f"liverl.{found}")
        ]
    assert wrong == []


def test_the_line_of_a_failure_is_matched_by_what_finds_it() -> None:
    told = {name: one for name, one in FAILURES.items() if one.line}
    assert len(told) > 90
    assert [
        name
        for name, one in told.items()
        if not any(re.search(BY_ID[found].pattern, one.line) for found in one.named(""))
    ] == []
