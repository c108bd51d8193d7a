"""Reads the output of `liverl-tui up` without an interface, as batch jobs keep it, and of `attach` and `events`: the
run's own account of its course and its end. Pure.

Its lines quote what services and components have said, also of what went well again. They are no lines of a log in
which the catalogue of causes looks for errors: ``apart`` leaves only what others have written into the same file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from liverl.causes.finding import Evidence, Explanation, Verdict
from liverl.causes.verdict.words import short
from liverl.diagnose.titles import point
from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.prefixes import colourless

KIND = "output of liverl-tui"
UNTOLD = "output-end-not-told"  # the note that the output does not say how the run ended
# ``plain.EventLines``: in a file, and on a terminal
_FILE = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (?P<service>\S{1,200}) {2,}"
    r"(?:(?P<level>debug|warning|error): )?(?P<text>[^\n]*)"
)
_TERMINAL = r"\d\d:\d\d:\d\d (?P<glyph>[·•▲✖]) (?P<of>\S{1,200}) {2,}(?P<words>[^\n]*)"
_LINE = re.compile(f"(?:{_FILE}|{_TERMINAL})$")
_LEVELS = {"·": "debug", "•": "info", "▲": "warning", "✖": "error"}
# What it says before the run has events, without a time
_BEFORE = re.compile(r"(?:checking: |preflight \w{1,20} \()")
_STAMP = r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |\d\d:\d\d:\d\d [·•▲✖]) "
_BEGINS = re.compile(
    rf"{_STAMP}(?:liverl-tui +(?:starting|resuming) run |run +run \S{{1,200}} "
    r"(?:\([^)\n]{1,200}\) )?started in /)"
)
# Any line of the program itself, of the run, or of its state: their names are padded to ten columns.
_NAMES = ("liverl-tui  ", f"run{' ' * 9}", f"state{' ' * 7}")
_MARK = re.compile(rf"{_STAMP}(?:{'|'.join(_NAMES)})\S")
_STARTED = re.compile(r"run \S+ .{0,200}?started in (?P<folder>/[^;,\n]{1,400})")
# The sentence of an end (``daemon.ending.summary_of``), and after it at most a word on what could not be written
_ENDED = re.compile(r"(?P<state>done|failed|stopped)(?=: |, but |$)|(?P<asked>stopped )|ended \(exit 0\)")
_AFTER = 2  # lines of the run
_OVER = re.compile(r'(?P<how>resolved|over|ended with the run) after \w{1,20}: "(?P<title>.{1,400}?)"')
_DO = "what to do: "
_HAS_FAILED = re.compile(r"\S{1,200} has failed\b")


class Line(NamedTuple):
    """``offset``: its byte in the file; ``level``: debug, info, warning or error."""

    offset: int
    service: str
    level: str
    text: str
    whole: str


class Told(NamedTuple):
    """What the output says of the newest attempt in it. ``state``: done, failed or stopped, empty if it does not say
    how the run ended; ``cause``: why it failed; ``symptoms``: the alerts that nothing has resolved; ``folder``: the
    run's directory, empty if it is not named."""

    state: str = ""
    cause: Explanation | None = None
    symptoms: tuple[Explanation, ...] = ()
    folder: str = ""
    last: Line | None = None


def is_output(sample: bytes) -> bool:
    """Whether a file with these bytes is such an output, or has one in it, as the output of a batch job."""
    if not any(name.encode() in sample for name in _NAMES):
        return False
    return any(_MARK.match(_bare(line)) is not None for line in sample.split(b"\n"))


def apart(data: bytes) -> tuple[bytes, list[Line]]:
    """What others have written, with blanks in place of our own lines, so that each of theirs stays at its byte; and
    our own lines."""
    others: list[bytes] = []
    own: list[Line] = []
    offset = 0
    for raw in data.split(b"\n"):
        line = _bare(raw)
        found = _LINE.match(line)
        if found is not None:
            parts = found.groupdict("")
            level = parts["level"] or _LEVELS.get(parts["glyph"], "info")
            text = parts["text"] or parts["words"]
            own.append(Line(offset, parts["service"] or parts["of"], level, text, found[0]))
        is_own = found is not None or _BEFORE.match(line) is not None
        others.append(b" " * len(raw) if is_own else raw)
        offset += len(raw) + 1
    return b"\n".join(others), own


def told(lines: Iterable[Line], path: str) -> Told:
    """What our own ``lines`` of an output say of its newest attempt. ``path``: of the file, as shown."""
    own: list[Line] = []
    for line in lines:
        begins = line.service in ("liverl-tui", "run") and _BEGINS.match(line.whole) is not None
        if begins and own and (line.service, own[-1].service) != ("run", "liverl-tui"):
            own = []  # another attempt, appended to the same file
        own.append(line)
    if not own:
        return Told()
    folder = next((m["folder"] for line in own if (m := _STARTED.match(line.text))), "")
    of_run = [line for line in own if line.service == "run"][-1 - _AFTER :]
    ends = ((line, found) for line in reversed(of_run) if (found := _ENDED.match(line.text)) is not None)
    end, ended = next(ends, (None, None))
    state = "" if ended is None else ended["state"] or ("stopped" if ended["asked"] else "done")
    symptoms = tuple(_alerts(own, state, path))
    cause = _failure(own, end, path) if end is not None and state == "failed" else None
    if end is not None and state != "failed" and (but := _but(end.text)):
        symptoms += (_problem(end, but, path),) if not _named(but, symptoms) else ()
    return Told(state, cause, symptoms, folder, own[-1])


def with_output(verdict: Verdict, found: Told) -> Verdict:
    """``verdict`` on what others have written into the file, with what the run says of itself: it saw its services,
    their logs and the trials."""
    if found.cause is None:
        return Verdict(verdict.cause, verdict.guesses, (*found.symptoms, *verdict.symptoms))
    others = () if verdict.cause is None else (verdict.cause,)
    return Verdict(found.cause, (), (*found.symptoms, *others, *verdict.symptoms))


def end_untold(found: Told, path: str) -> Explanation:
    """The note that the output stops before it says how the run ended."""
    where = f" {found.folder}" if found.folder else ""
    last = found.last
    return Explanation(
        UNTOLD,
        "info",
        "This output does not say how the run ended",
        "it goes on, or the command was killed, which does not end the run",
        "Ask the run itself.",
        command=f"liverl-tui status{where}",
        evidence=(Evidence(short(last.whole), path, last.offset),) if last is not None else (),
    )


def _bare(raw: bytes) -> str:
    """A line without its colours, and without what a collector of logs has put before it."""
    return split_prefixes(colourless(raw.decode("utf-8", "replace")).rstrip("\r")).text


def _failure(own: list[Line], end: Line, path: str) -> Explanation:
    """Why the run failed: the sentence of its end, with the reason and the advice of the service that failed."""
    title = end.text.partition(": ")[2] or end.text
    named = [n for n, line in enumerate(own) if line.level == "error" and _HAS_FAILED.match(line.text)]
    why = fix = ""
    proof = [Evidence(short(end.whole), path, end.offset)]
    if named:
        line = own[named[-1]]
        said = line.text.partition(": ")[2]
        why = said.partition(". ")[2] if point(title.partition(": ")[2] or title) in said else said
        fix = _advice(own, named[-1])
        proof.append(Evidence(short(line.whole), path, line.offset))
    return Explanation(
        "run-failed", "critical", title, why, fix or "Look at the run itself.", evidence=tuple(proof)
    )


def _alerts(own: list[Line], state: str, path: str) -> Iterator[Explanation]:
    """The warnings with an advice that nothing has resolved. Of a run that somebody stopped, those stay that it had
    then."""
    found: dict[str, Explanation] = {}
    for number, line in enumerate(own):
        over = _OVER.match(line.text)
        if over is not None and not (over["how"] == "ended with the run" and state == "stopped"):
            found.pop(over["title"], None)
        fix = _advice(own, number)
        if line.level not in ("warning", "error") or not fix or _HAS_FAILED.match(line.text):
            continue
        title, why = _parts(line.text)
        found[point(title)] = Explanation(
            "alert",
            "critical" if line.level == "error" else "warning",
            title,
            why,
            fix,
            evidence=(Evidence(short(line.whole), path, line.offset),),
        )
    yield from sorted(found.values(), key=lambda one: one.severity != "critical")


def _parts(text: str) -> tuple[str, str]:
    """Title and cause of an alert's line (``titles.sentences``)."""
    title, dot, why = text.partition(". ")
    if dot and ": " in title:
        return title, why
    title, _, why = text.partition(": ")
    return title, why


def _advice(own: list[Line], number: int) -> str:
    """What to do about a line, which stands in the next one."""
    if number + 1 >= len(own):
        return ""
    following = own[number + 1]
    is_of_it = following.service == own[number].service and following.text.startswith(_DO)
    return following.text.removeprefix(_DO) if is_of_it else ""


def _but(text: str) -> str:
    """The problem that the sentence of an end names beside it."""
    for word in ("; but ", "; it had this problem: "):
        if word in text:
            return text.partition(word)[2]
    return ""


def _named(but: str, symptoms: tuple[Explanation, ...]) -> bool:
    return any(one.title in but or but in one.title for one in symptoms)


def _problem(end: Line, but: str, path: str) -> Explanation:
    return Explanation(
        "problem-at-the-end",
        "warning",
        but[:1].upper() + but[1:],
        "The run says it of its end.",
        "Look at the run itself: its alerts say what to do.",
        evidence=(Evidence(short(end.whole), path, end.offset),),
    )
