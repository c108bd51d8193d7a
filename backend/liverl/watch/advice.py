"""What to do about an alert of a run that liverl-tui did not start: it has no keys of our configuration, no keys of our
interface that act on it, and no command of ours that changes it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from liverl.causes.verdict.plain_keys import in_plain_words
from liverl.diagnose.catalogue.go_back import GO_BACK

# Commands that read any run's files; every other one needs a run of ours.
_READS = ("liverl-tui doctor", "liverl-tui watch")
_KEY = re.compile(r" \(\w in the interface\)")
# A command that stands in brackets of its own, or behind the advice: the advice holds without it.
_ASIDE = re.compile(
    r" \(liverl-tui (?!doctor|watch)[^();]*\)|\. Look with: liverl-tui (?!doctor|watch)[^;]*$"
)
_CLAUSE = re.compile(r"(; (?:then |or |otherwise )?)")


def for_watched(text: str) -> str:
    """``text`` in terms of a run that is only watched: without what names a command or a key of the interface that it
    does not have, and with plain words for keys of our configuration. All that is left of an advice which has nothing
    else is to do it where the run was started."""
    text = _ASIDE.sub("", _KEY.sub("", text))
    for joint in (": ", "; "):
        text = text.replace(f"{joint}{GO_BACK}", "")
    return in_plain_words("".join(_kept(text)).removeprefix("; ")) or "change it where the run was started"


def _kept(text: str) -> Iterator[str]:
    """The clauses of ``text``, each with what joins it, without those that name a command which needs a run of ours. A
    semicolon in brackets ends no clause."""
    joint, clause = "", ""
    for number, part in enumerate(_CLAUSE.split(text)):
        if number % 2 and clause.count("(") <= clause.count(")"):
            yield from _one(joint, clause)
            joint, clause = part, ""
        else:
            clause += part
    yield from _one(joint, clause)


def _one(joint: str, clause: str) -> Iterator[str]:
    commands = clause.count("liverl-tui ")
    if commands <= sum(clause.count(one) for one in _READS):
        yield f"{joint}{clause}"
