"""What the doctor says: as JSON for programs, as text for people. Pure."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from liverl.causes.finding import Evidence, Explanation
from liverl.diagnose.titles import sentences
from liverl.offline.doctor.ended_anyhow import ENDED_ANYHOW, RAY_ONLY
from liverl.offline.doctor.examine import Examination
from liverl.offline.doctor.inputs import MORE, UNREADABLE, Input
from liverl.offline.doctor.moments import When
from liverl.offline.doctor.named_errors import NAMED
from liverl.offline.doctor.passed_errors import PASSED
from liverl.offline.doctor.up_output import UNTOLD
from liverl.util import redact
from liverl.util.ages import ago, clock

Severity = Literal["info", "warning", "critical"]
WIDTH = 100  # columns at most
KINDS = 4  # of the files that are not listed one by one
QUOTED = (PASSED, ENDED_ANYHOW, NAMED, UNTOLD)  # notes of which the lines are shown
LISTED = 40  # lines of files in the text; all of them are in the JSON


class EvidenceShown(msgspec.Struct, frozen=True):
    """One piece of proof. ``log``: the file that holds it; ``offset``: the byte at which ``text`` begins in it;
    ``line``: its line, from 1; ``value``: the number that was measured. Each is null where it is not known."""

    text: str
    log: str | None
    offset: int | None
    line: int | None
    value: float | None


class FindingShown(msgspec.Struct, frozen=True):
    """What is wrong, why, and what to do. ``patch``: configuration key -> the value that corrects it; ``guess``: a rule
    of thumb chose some of these values; ``command``: to copy into a shell; ``at``: Unix time of its line, null if
    unknown."""

    id: str
    severity: Severity
    title: str
    cause: str
    fix: str
    command: str
    patch: dict[str, str]
    guess: bool
    at: float | None
    evidence: tuple[EvidenceShown, ...]


class CauseShown(msgspec.Struct, frozen=True):
    """The line that says why the run failed. ``log`` and ``offset`` are null where no line says it; ``at``: its Unix
    time, null if unknown."""

    text: str
    log: str | None
    offset: int | None
    at: float | None


class GuessShown(msgspec.Struct, frozen=True):
    """A possible cause of a failure whose cause is unknown. ``command`` tells it from the others."""

    id: str
    title: str
    cause: str
    fix: str
    command: str


class DoctorReport(msgspec.Struct, frozen=True):
    """``doctor --json``. ``symptoms``: what is wrong, the explanation of ``cause`` first; ``guesses``: possible causes,
    likeliest first, if the cause is unknown; ``notes``: no faults; ``left_out``: why something was not examined, empty
    if all was; ``files``: what was looked at."""

    cause: CauseShown | None
    symptoms: tuple[FindingShown, ...]
    guesses: tuple[GuessShown, ...]
    notes: tuple[FindingShown, ...]
    left_out: str
    files: tuple[Input, ...]


def as_json(examination: Examination) -> str:
    """A ``DoctorReport`` as JSON text, without secrets."""
    verdict = examination.verdict
    report = DoctorReport(
        cause=None if verdict.cause is None else _cause(verdict.cause, examination),
        symptoms=tuple(_symptom(one, examination) for one in verdict.explanations),
        guesses=tuple(
            GuessShown(one.id, one.title, one.cause, one.fix, one.command) for one in verdict.guesses
        ),
        notes=tuple(_symptom(one, examination) for one in examination.notes),
        left_out=examination.left_out,
        files=examination.files,
    )
    return json.dumps(redact.document(msgspec.to_builtins(report)), ensure_ascii=False, indent=1)


def _cause(cause: Explanation, examination: Examination) -> CauseShown:
    when = _when(cause, examination)
    at = None if when is None else when.line
    proof = next((one for one in cause.evidence if one.offset is not None), None)
    if proof is None:
        log = next((one.log for one in cause.evidence if one.log), None)
        text = next((one.text for one in cause.evidence if one.text and one.log), cause.title)
        return CauseShown(text, log, None, at)
    return CauseShown(proof.text, proof.log, proof.offset, at)


def _when(one: Explanation, examination: Examination) -> When | None:
    """When the first line of a log was written that proves it; None if it is proved by none, or that is not known."""
    places = ((proof.log or "", proof.offset) for proof in one.evidence if proof.offset is not None)
    return next((when for place in places if (when := examination.times.get(place)) is not None), None)


def _when_words(when: When, now: float) -> str:
    written = "" if when.at is None else f"{clock(when.at)}, {ago(now - when.at)} ago"
    if when.how in ("clock", "file"):
        stated = f"about {when.hour}; its log states no day" if when.hour else "its log states no time"
        return f"{stated}; its file was last written {written}" if written else stated
    return f"about {written}" if when.how == "near" else written


def _symptom(one: Explanation, examination: Examination) -> FindingShown:
    when = _when(one, examination)
    return FindingShown(
        id=one.id,
        severity=one.severity,
        title=one.title,
        cause=one.cause,
        fix=one.fix,
        command=one.command,
        patch=one.patch,
        guess=one.guess,
        at=None if when is None else when.line,
        evidence=tuple(_shown(proof, examination) for proof in one.evidence),
    )


def _shown(proof: Evidence, examination: Examination) -> EvidenceShown:
    place = (proof.log or "", -1 if proof.offset is None else proof.offset)
    return EvidenceShown(proof.text, proof.log, proof.offset, examination.lines.get(place), proof.value)


def as_text(examination: Examination, width: int = WIDTH) -> str:
    """The report, without secrets: the cause with its proof and what to do, what else is wrong, and what was read.
    ``width``: columns in which sentences are wrapped; lines of logs and commands are not."""
    verdict = examination.verdict
    lines: list[str] = []
    if verdict.cause is not None:
        lines += _explained("cause", verdict.cause, examination, width)
    elif not verdict.symptoms:
        lines += _wrapped("", _clean(examination), width)
    if verdict.guesses:
        lines += ["", "possible causes, likeliest first:"]
        for number, guess in enumerate(verdict.guesses, 1):
            lines += [
                f"  {number}. {guess.title}",
                f"     check: {guess.command}",
                *_wrapped("     then: ", guess.fix, width),
            ]
    for one in verdict.symptoms:
        label = "also" if verdict.cause is not None else one.severity
        lines += [*([""] if lines else []), *_explained(label, one, examination, width)]
    if examination.notes:
        lines += ["", "notes (no faults):"]
        for one in examination.notes:
            lines += _wrapped("  ", sentences(one.title, one.cause), width)
            if one.id in QUOTED:
                lines += [f"    {_place(proof, examination)}: {proof.text}" for proof in one.evidence]
    lines += ["", "files:", *_files(examination.files)]
    return redact.value("\n".join(lines))


def _files(files: Sequence[Input]) -> Iterator[str]:
    """What was judged first, then what could not be read, then the rest; of a long list the end by its kinds."""
    ordered = sorted(files, key=lambda one: (one.path != MORE, not one.read, UNREADABLE not in one.what))
    yield from (f"  {one.path}: {one.what}" for one in ordered[:LISTED])
    kinds = Counter(one.what.partition(";")[0] for one in ordered[LISTED:])
    if kinds:
        parts = [f"{count} x {kind}" for kind, count in kinds.most_common(KINDS)]
        more = ["..."] if len(kinds) > KINDS else []
        yield f"  and {kinds.total()} more ({'; '.join([*parts, *more])}); --json lists all"


def _clean(examination: Examination) -> str:
    """What is said where nothing is wrong in what was judged."""
    if not examination.read:
        return "nothing to read: no log is among these paths"
    earlier = sum("not judged" in one.what for one in examination.files)
    found, but = "nothing wrong was found", ""
    if any(one.id == UNTOLD for one in examination.notes):
        found, but = "no failure was found", "; how the run ended is not told (see the notes)"
    elif any(one.id == PASSED for one in examination.notes):
        found, but = "no failure was found", "; the logs have errors that ended nothing (see the notes)"
    elif any(one.id == ENDED_ANYHOW for one in examination.notes):
        found, but = "no failure was found", "; actors or nodes of Ray ended, meant to or not (see the notes)"
    elif any(one.id == NAMED for one in examination.notes):
        found, but = (
            "no failure was found",
            "; something may have failed: a line names an error (see the notes)",
        )
    elif any(one.id == RAY_ONLY for one in examination.notes):
        found, but = "no failure was found", "; only logs of Ray itself were read (see the notes)"
    if not earlier:
        return f"{found}{but}"
    others = "one file of an earlier run was" if earlier == 1 else f"{earlier} files of earlier runs were"
    return f"{found} in the newest run{but}; {others} not judged"


def _explained(label: str, one: Explanation, examination: Examination, width: int) -> Iterator[str]:
    says_it = one.title.startswith(f"{label} ") or f": {label} unknown" in one.title
    yield from _wrapped("" if says_it else f"{label}: ", one.title, width)
    for proof, again in _each_once(one.evidence):
        yield from _proof(proof, examination)
        if again:
            yield f"    (again in {', '.join(_again(other, proof, examination) for other in again)})"
    when = _when(one, examination)
    if when is not None:
        yield from _wrapped("  when: ", _when_words(when, examination.at), width)
    if one.cause:
        yield from _wrapped("  why: ", one.cause, width)
    if one.fix:
        yield from _wrapped("  fix: ", one.fix, width)
    for key, value in one.patch.items():
        yield f"  set: {key}: {value}{' (a guess)' if one.guess else ''}"
    if one.command:
        yield f"  run: {one.command}"


def _each_once(evidence: Iterable[Evidence]) -> list[tuple[Evidence, list[Evidence]]]:
    """Each text once, with the further places where it stands."""
    found: dict[str, tuple[Evidence, list[Evidence]]] = {}
    for one in evidence:
        if one.text in found:
            found[one.text][1].append(one)
        else:
            found[one.text] = one, []
    return list(found.values())


def _proof(proof: Evidence, examination: Examination) -> Iterator[str]:
    if proof.log is None or proof.offset is None:
        where = f" ({proof.log})" if proof.log is not None and proof.log not in proof.text else ""
        yield f"  proof: {proof.text}{where}" if proof.text else f"  proof: {proof.log}"
        return
    yield f"  {_place(proof, examination)} (byte {proof.offset}):"
    yield f"    {proof.text}"


def _place(proof: Evidence, examination: Examination) -> str:
    line = examination.lines.get((proof.log or "", -1 if proof.offset is None else proof.offset))
    return f"{proof.log}:{line}" if line is not None else str(proof.log)


def _again(other: Evidence, first: Evidence, examination: Examination) -> str:
    place = _place(other, examination)
    return place.replace(f"{first.log}:", "line ", 1) if other.log == first.log else place


def _wrapped(label: str, text: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(text)
