"""The place that stands beside a quoted line is that of this line, wherever one is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from kit.live_logs import Followed

from liverl.causes.inputs.ended import Ended, error_behind_success, why_ended
from liverl.causes.site.reading import read_rules
from liverl.causes.site.shown import tried
from liverl.model import Evidence, Exit
from liverl.offline.doctor.examine import examine
from liverl.watch.verdicts import Judge, JudgedLog

# A refused connection, because the rules of live logs count it, too.
ERROR = "ConnectionRefusedError: [Errno 111] Connection refused"
BEGIN = 'Traceback (most recent call last):\n  File "/home/me/t.py", line 4, in <module>\n    ask()\n'
ABOVE = "2026-11-30 00:00:01 INFO step 1\n" * 30
TEXT = f"{ABOVE}{BEGIN}{ERROR}\n"
RULES = f"""
[[row]]
id = "no-server"
role = "cause"
needle = "ConnectionRefusedError"
pattern = '{re.escape(ERROR)}'
title = "No server"
cause = "It is down."
fix = "Start it."
source = "here"
fires = "{ERROR}"
spares = "Connection"
"""

Quoted = Iterable[tuple[str, int | None]]  # a line, and its byte


def of(evidence: Iterable[Evidence]) -> Quoted:
    return [(one.text, one.offset) for one in evidence if one.offset is not None]


def doctor(log: Path) -> Quoted:
    examination = examine([log])
    for one in examination.verdict.explanations:
        for proof in one.evidence:
            if proof.offset is not None:
                yield proof.text, proof.offset
                line = examination.lines[str(log), proof.offset]
                assert log.read_text().splitlines()[line - 1] == proof.text


def watch(log: Path) -> Quoted:
    judged = Judge(lambda: [JudgedLog(log, "shown.log", "train", False, log.stat().st_size, 0.0)]).look()
    return [quoted for one in judged.symptoms for quoted in of(one.evidence)]


def result(log: Path) -> Quoted:
    why = why_ended(Ended("trainer", log, exit=Exit(1)))
    return of(why.explanation.evidence) if why is not None else ()


def exit_zero(log: Path) -> Quoted:
    why = error_behind_success(Ended("trainer", log, exit=Exit(0)), unfinished=True)
    return of(why.explanation.evidence) if why is not None else ()


def live_logs(log: Path) -> Quoted:
    run = Followed(log.parent / "run")
    run.path("trainer").touch()
    run.look()
    run.write("trainer", *log.read_text().splitlines())
    (found,) = run.look()
    return [(one.last.text, one.last.offset) for one in found.complaints]


def rules(log: Path) -> Quoted:
    (log.parent / "site.toml").write_text(RULES)
    begins = [0]
    for line in log.read_bytes().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    fired = tried(read_rules([log.parent / "site.toml"]), log).fired
    return [(one.text, begins[one.line - 1]) for one in fired]


@pytest.mark.parametrize(
    "quoted", [doctor, watch, result, exit_zero, live_logs, rules], ids=lambda one: one.__name__
)
def test_the_place_is_that_of_the_line(quoted: Callable[[Path], Quoted], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(TEXT)
    found = [one for one in quoted(log) if one[0] == ERROR]
    assert found and {place for _, place in found} == {TEXT.index(ERROR)}
