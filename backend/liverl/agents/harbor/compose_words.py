"""What Docker Compose complained of, in the message of Harbor's exception: the whole output of a build, behind the
whole command, of which one step and its last lines say what went wrong. Pure; for Python 3.10 with few packages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from liverl.util.late_pattern import late_pattern

BUILD_ERROR, START_ERROR = "SandboxBuildError", "SandboxStartError"
LONGEST = 400  # characters of what is told
WHOLE = "; what Docker Compose printed is in exception.txt of the trial"  # behind the words, in our own trials' ends
_HEAD = "Docker compose command failed for environment "
# ``harbor/environments/docker/docker.py``, _run_docker_compose_command, of Harbor 0.25.
_STDOUT = late_pattern(r"\. Return code: (-?\d{1,6})\. Stdout: ")
_STDERR = ". Stderr: "
# Behind the last of the files that Harbor names: what follows ``exec`` is an agent's own.
_COMMAND = late_pattern(
    r"\.(?:json|ya?ml) (build|up|pull|create|start)(?: --?[\w-]{1,40}(?:[= ][\w.-]{1,60})?){0,8}$"
)
_LARGEST = 1 << 20  # characters of a message that are looked at, its last ones
_LINES = 40  # last lines of a step that are looked at
_SHOWN = 2  # of these that are told
_STEP, _LINE = 160, 200  # characters of a step and of a line that are told
_DASHES = "------"
_AT = late_pattern(r"^(?:#\d{1,4} )?\d{1,6}\.\d{1,4} ")  # seconds of a line of BuildKit's
# `` > [main 2/3] RUN make:``; the stage has a name only in some versions.
_FAILED_STEP = late_pattern(r"^ > (?:\[[^\]\n]{1,200}\] )?(?P<step>.{1,4000}?):?$")
_EXIT = late_pattern(r"(?:did not complete successfully: |\]: )exit code: (?P<code>\d{1,3})")
_SOLVE = late_pattern(r"^(?:target [\w.-]{1,100}: |ERROR: ){0,2}failed to solve: (?P<why>.{1,4000})$")
_CLASSIC = late_pattern(
    r"^(?:ERROR: )?.{0,200}?The command '(?P<step>.{1,4000}?)' returned a non-zero code: (?P<code>\d{1,3})"
)
_CLASSIC_BEGIN = late_pattern(r"^ ---> |^Step \d{1,4}/\d{1,4} : ")
# What a client wraps around the reason.
_WRAPPED = late_pattern(
    r"^(?:rpc error: code = \w{1,40} desc = |failed to solve with frontend [\w.-]{1,60}: "
    r"|failed to create LLB definition: |failed to solve: )"
)
_SHELL = late_pattern(r"^/bin/(?:ba|a)?sh -\w{1,6} ")
_ERROR = late_pattern(
    r"\b(?:error|fatal|failed|failure|cannot|can't|could not|unable|denied|not found|no such|no matching|invalid|"
    r"missing|unknown)\b",
    re.IGNORECASE,
)


class ComposeFailure(NamedTuple):
    """``kind``: a type of exception, ``BUILD_ERROR`` or ``START_ERROR``; ``words``: what failed and its own words, in
    one line of at most ``LONGEST`` characters."""

    kind: str
    words: str


def compose_failure(message: str) -> ComposeFailure | None:
    """What the message of an exception of Harbor's says; None if it is not about Compose that made a sandbox."""
    if not message.startswith(_HEAD):
        return None
    end = _STDOUT.search(message)
    command = _COMMAND.search(message, 0, end.start()) if end is not None else None
    if end is None or command is None:
        return None
    output, found, errors = message[end.end() :][-_LARGEST:].rpartition(_STDERR)
    parts = (output, errors.rstrip(" .")) if found else (errors,)
    text = "\n".join(part for part in parts if part.strip() not in ("", "None"))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    built = _buildkit(lines) or _classic(lines)
    if built:
        return ComposeFailure(BUILD_ERROR, _cut(built, LONGEST))
    last = lines[-1].strip() if lines else f"it exited with {end[1]} and printed nothing"
    kind = BUILD_ERROR if command[1] == "build" else START_ERROR
    return ComposeFailure(kind, _cut(f"docker compose {command[1]}: {last}", LONGEST))


def named(kind: str, message: str) -> tuple[str, str]:
    """The type and the message of an exception of Harbor's, with the words first that say what went wrong; as they are
    where it is not about Compose that made a sandbox."""
    found = compose_failure(message)
    return (kind, message) if found is None else (found.kind, f"{found.words}\n\n{message}")


def sandbox_words(kind: str, message: str) -> str:
    """Why a sandbox could not be made, of an exception as ``named`` or this program's own trials have it; "" if it is
    about something else."""
    if kind not in (BUILD_ERROR, START_ERROR):
        return ""
    return _cut(message.partition("\n")[0].removesuffix(WHOLE), LONGEST)


def _buildkit(lines: Sequence[str]) -> str:
    """Of BuildKit's output: the failed step stands between two lines of dashes."""
    whys = [(at, match["why"]) for at, line in enumerate(lines) if (match := _SOLVE.match(line))]
    if not whys:
        return ""
    at, why = whys[-1]
    dashes = [number for number in range(at) if lines[number] == _DASHES]
    step, told = "", list[str]()
    for begin, end in reversed(list(itertools.pairwise(dashes))):
        if match := _FAILED_STEP.match(lines[begin + 1]):
            step, told = match["step"], [_AT.sub("", line) for line in lines[begin + 2 : end]]
            break
    code = _EXIT.search(why)
    if code is not None and step:
        return _sentence(step, told, code["code"])
    while (short := _WRAPPED.sub("", why)) != why:
        why = short
    # ``load metadata for IMAGE`` is no line of the task's Dockerfile.
    return f"{_cut(step, _STEP)}: {why}" if step.split(" ")[0].isupper() else why


def _classic(lines: Sequence[str]) -> str:
    """Of the builder before BuildKit."""
    for at in range(len(lines) - 1, -1, -1):
        if match := _CLASSIC.match(lines[at]):
            begin = next((n + 1 for n in range(at - 1, -1, -1) if _CLASSIC_BEGIN.match(lines[n])), 0)
            return _sentence(f"RUN {_SHELL.sub('', match['step'])}", lines[begin:at], match["code"])
    return ""


def _sentence(step: str, told: Sequence[str], code: str) -> str:
    recent = [line.strip() for line in told[-_LINES:] if line.strip()]
    errors = [line for line in recent if _ERROR.search(line)] or recent
    lines = [_cut(line, _LINE) for line in errors[-_SHOWN:]]
    while len(lines) > 1 and sum(map(len, lines)) > LONGEST - _STEP - len(" (exit code 127)") - 8:
        lines.pop()
    own = f": {' | '.join(lines)}" if lines else ", which printed nothing"
    return f"{_cut(step, _STEP)}{own} (exit code {code})"


def _cut(text: str, longest: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"
