"""Why a process ended, as the run's result, alerts, status, report and events show it. Pure."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.causes.inputs.ended import Why
from liverl.causes.verdict.guesses import GPU, RAY
from liverl.model import Cause, Evidence, Guess

USUAL_RAY = "/tmp/ray"  # where Ray keeps its sessions unless it is told otherwise (--temp-dir)


def cause(
    why: Why, run_dir: Path, at: float, *, ray: bool = True, ray_dir: str = "", gpus: bool = True
) -> Cause:
    """``why`` as it is shown, with the paths of logs relative to the run's directory. ``ray``: the run may use Ray;
    else nobody guesses at it. ``ray_dir``: the directory of the run's own Ray; "": Ray's usual one. ``gpus``: it may
    compute on some; likewise."""
    found, evidence = why.explanation, tuple(_relative(one, run_dir) for one in why.explanation.evidence)
    place = first_place(evidence)
    title = found.title.removeprefix(f"{why.of} was ").removeprefix(
        f"{why.of} "
    )  # it is shown behind the name
    return Cause(
        why.of,
        title,
        at,
        None if place is None else place.log,
        None if place is None else place.offset,
        id=found.id,
        why=found.cause,
        fix=_of_ray(found.fix, ray_dir),
        command=_of_ray(found.command, ray_dir),
        patch=found.patch,
        guess=found.guess,
        evidence=evidence,
        guesses=tuple(
            Guess(one.title, _of_ray(one.command, ray_dir), _of_ray(one.fix, ray_dir))
            for one in why.guesses
            if (ray or one.id != RAY.id) and (gpus or one.id != GPU.id)
        ),
    )


def _of_ray(text: str, ray_dir: str) -> str:
    """``text`` with the logs of the run's own Ray in place of those of any Ray."""
    return text.replace(USUAL_RAY, ray_dir) if ray_dir else text


def _relative(evidence: Evidence, run_dir: Path) -> Evidence:
    if evidence.log is None or not Path(evidence.log).is_relative_to(run_dir):
        return evidence
    return msgspec.structs.replace(evidence, log=str(Path(evidence.log).relative_to(run_dir)))


def first_place(evidence: tuple[Evidence, ...]) -> Evidence | None:
    """The first piece of evidence that is a line of a log; None without one."""
    return next((one for one in evidence if one.log is not None and one.offset is not None), None)


def words_of(cause: Cause, step: int | None = None) -> str:
    """``trainer killed by SIGKILL in step 81``, ``trainer in step 81: CUDA out of memory``. ``step``: the step that was
    under way; None if none was."""
    where = f" in step {step}" if step is not None and cause.service == "trainer" else ""
    if cause.service is None:
        return cause.text
    killed, found, rest = cause.text.partition("; ")
    if killed.startswith("killed by "):
        return f"{cause.service} {killed}{where}{found}{rest}"
    return f"{cause.service}{where}: {cause.text}"


def unchecked(cause: Cause) -> tuple[Guess, ...]:
    """The guesses whose check does not stand in the fix already."""
    return tuple(guess for guess in cause.guesses if guess.check not in cause.fix)
