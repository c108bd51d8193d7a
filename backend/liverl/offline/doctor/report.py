"""What the doctor says: as JSON for programs, as text for people. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from liverl.causes.finding import Evidence, Explanation
from liverl.offline.doctor.examine import Examination, explanations
from liverl.util import redact

WIDTH = 100  # columns at most
LISTED = 40  # lines of files in the text; all of them are in the JSON


def as_json(examination: Examination) -> str:
    """``{"cause": ..., "symptoms": [...], "guesses": [...], "files": [...]}``, without secrets."""
    verdict = examination.verdict
    document = redact.document(
        {
            "cause": None if verdict.cause is None else _cause(verdict.cause),
            "symptoms": [_symptom(one, examination) for one in explanations(verdict)],
            "guesses": [
                {"id": one.id, "title": one.title, "cause": one.cause, "fix": one.fix, "command": one.command}
                for one in verdict.guesses
            ],
            "files": [msgspec.to_builtins(one) for one in examination.files],
        }
    )
    return json.dumps(document, ensure_ascii=False, indent=1)


def _cause(cause: Explanation) -> dict[str, Any]:
    proof = next((one for one in cause.evidence if one.offset is not None), None)
    if proof is None:
        log = next((one.log for one in cause.evidence if one.log), None)
        return {"text": cause.title, "log": log, "offset": None}
    return {"text": proof.text, "log": proof.log, "offset": proof.offset}


def _symptom(one: Explanation, examination: Examination) -> dict[str, Any]:
    return {
        "id": one.id,
        "severity": one.severity,
        "title": one.title,
        "cause": one.cause,
        "fix": one.fix,
        "command": one.command,
        "patch": one.patch,
        "guess": one.guess,
        "evidence": [
            {
                "text": proof.text,
                "log": proof.log,
                "offset": proof.offset,
                "line": examination.lines.get(
                    (proof.log or "", -1 if proof.offset is None else proof.offset)
                ),
                "value": proof.value,
            }
            for proof in one.evidence
        ],
    }


def as_text(examination: Examination, width: int = WIDTH) -> str:
    """The report, without secrets: the cause with its proof and what to do, what else is wrong, and what was read.
    ``width``: columns in which sentences are wrapped; lines of logs and commands are not."""
    verdict = examination.verdict
    lines: list[str] = []
    if verdict.cause is not None:
        lines += _explained("cause", verdict.cause, examination, width)
    elif not verdict.symptoms:
        lines.append(
            "nothing wrong was found" if examination.read else "nothing to read: no log is among these paths"
        )
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
    lines += ["", "files:"]
    shown = examination.files[:LISTED]
    lines += [f"  {one.path}: {one.what}" for one in shown]
    if len(examination.files) > len(shown):
        lines.append(f"  and {len(examination.files) - len(shown)} more; --json lists all")
    return redact.value("\n".join(lines))


def _explained(label: str, one: Explanation, examination: Examination, width: int) -> Iterator[str]:
    says_it = one.title.startswith(f"{label} ") or f": {label} unknown" in one.title
    yield from _wrapped("" if says_it else f"{label}: ", one.title, width)
    for proof, again in _each_once(one.evidence):
        yield from _proof(proof, examination)
        if again:
            yield f"    (again in {', '.join(_again(other, proof, examination) for other in again)})"
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
        yield f"  proof: {proof.text}"
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
