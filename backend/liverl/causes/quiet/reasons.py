"""Why a training ended before its last step although nothing failed. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from liverl.causes.finding import Evidence, Explanation
from liverl.causes.quiet.owed import Owed, Passed
from liverl.causes.quiet.told import Submitted, Told
from liverl.util.late_pattern import late_pattern
from liverl.util.plural import plural, quantity

JOB = "job-submitted"
JOB_FAILED = "job-failed"
BACKGROUND = "trainer-in-background"
VALIDATION = "validation-only"
BOUNDARY = "resumed-at-epoch-boundary"
EPOCHS = "epochs-too-few"
USED_UP = "data-used-up"
EARLY = "ended-early"
EXIT_CODE = "exit-code-hidden"
UNJUDGED = "end-not-judged"
# ends without an error
QUIET = frozenset((JOB, BACKGROUND, VALIDATION, BOUNDARY, EPOCHS, USED_UP, EARLY, UNJUDGED))

_SCHEDULERS = {"ray": "Ray", "slurm": "Slurm", "kubernetes": "Kubernetes"}
_GO_ON = "then resume the run"


# What a script leaves running that trains nothing: Ray, engines, proxies, and tools of a shell.
_HELPERS = late_pattern(
    r"raylet|gcs_server|ray::|ray\b|\bray[._/]|dashboard|log_monitor|runtime_env|litellm|vllm|sglang|wandb|"
    r"multiprocessing|resource_tracker|default_worker\.py|setup_worker\.py|monitor\.py|agent\.py|"
    r"^(?:tee|tail|cat|sleep|sed|grep|awk|ts|nvidia-smi|rsync|ssh|docker|redis-server|prometheus|ld-linux\S*)\b|"
    r"^python[\d.]* -c\b",
    re.IGNORECASE,
)


def left_trainer(programs: Iterable[str]) -> str:
    """The first of the programs that outlived their script which may be its trainer; "" without one."""
    return next((one for one in programs if _HELPERS.search(one) is None), "")


def sentence(told: Told, owed: Owed | None, step: int) -> str:
    """``ended without an error after step 25 of 100``. ``step``: the newest one of the training, 0 before the first."""
    if owed is None:
        return (
            "ended without an error, and no training step was seen"
            if step < 1
            else f"ended after step {step}"
        )
    differing = f" ({owed.differing})" if owed.differing else ""
    if step < 1:
        return f"ended without an error; 0 of {quantity(owed.steps, 'step')} were seen{differing}"
    if told.made == 0 and told.began is not None and told.began == step:
        return f"ended without an error at step {step} of {owed.steps}, where it had resumed{differing}"
    return f"ended without an error after step {step} of {owed.steps}{differing}"


def job_words(job: Submitted) -> str:
    """``the Ray job raysubmit_1``."""
    return f"the {_SCHEDULERS[job.system]} job {job.id}"


def job_command(job: Submitted) -> str:
    """The command that follows the job."""
    if job.system == "slurm":
        return f"squeue -j {job.id}; sacct -j {job.id}"
    if job.system == "kubernetes":
        return f"kubectl logs -f {job.id}"
    return f"ray job logs -f {job.id}" + (f" --address {job.address}" if job.address else "")


def reason(
    told: Told,
    owed: Owed | None,
    step: int,
    passed: Passed | None = None,
    job: Submitted | None = None,
    job_state: str = "",
    left: str = "",
) -> Explanation:
    """Why the training ended, with its proof and what to do. ``step``: the newest one; ``job``: that the script has
    submitted and whose end its log does not tell, ``job_state``: what its scheduler says of it, empty if it was not
    asked; ``left``: a program that still ran when the script ended, in words."""
    title = sentence(told, owed, step)
    proofs = tuple(_proofs(told))
    if job is not None:
        return _submitted(told, owed, step, job, job_state)
    if left or (told.background and not told.made and told.began is None and not told.has_bar):
        return _background(title, told, left)
    if told.val_only and not told.made:
        why = "It was told to validate only (val_only), so it made no step."
        fix = "Remove val_only from the trainer's configuration."
        return Explanation(VALIDATION, "warning", title, why, fix, evidence=_of(told, "val_only") + proofs)
    found = _of_data(title, told, owed, step, passed or Passed())
    if found is not None:
        return replace(found, evidence=found.evidence + proofs)
    last = "" if not told.closed else f' It ended with the line "{told.closed}".'
    last += f" Not read: {told.left_out}." if told.left_out else ""
    return Explanation(
        EARLY,
        "warning",
        title,
        f"It exited with 0, and its log does not say why it stopped there.{last}",
        "Read the end of its log. Look for a limit of steps, time or samples in the trainer's own settings, or a last "
        f"command of the script that hides an exit code (add set -o pipefail). Correct it, {_GO_ON}.",
        evidence=proofs,
    )


def signal_words(line: str) -> str:
    """`` (137 is 128 + 9: SIGKILL)`` if the exit code in the line is that of a signal, else empty."""
    found = re.search(r"\b1[2-5]\d\b", line)
    number = int(found[0]) - 128 if found is not None else 0
    names = {one.value: one.name for one in signal.Signals}
    return f" ({number + 128} is 128 + {number}: {names[number]})" if number in names else ""


def exit_code_hidden(told: Told) -> Explanation:
    """Why exit code 0 of a script is no success: the last lines of its log tell another one."""
    return Explanation(
        EXIT_CODE,
        "critical",
        f'exited with 0, but its log ends with "{told.failed[:60]}"',
        f'The last lines of its log have "{told.failed}"{signal_words(told.failed)}: the script told how its trainer '
        "ended, and then exited with 0 itself.",
        "Read the log before that line for the error. Let the script end with the trainer's exit code: set -e, or "
        "`exit $?` behind the trainer.",
        evidence=_of(told, "failed"),
    )


def not_judged(told: Told, step: int) -> Explanation:
    """Why an end with exit code 0 is not called done: what could contradict it was not read. ``step``: the newest
    one that is known."""
    after = f"after step {step}" if step else "without a step that was seen"
    return Explanation(
        UNJUDGED,
        "warning",
        f"ended {after}; whether its training is complete is not known",
        f"It exited with 0. Its log was not read completely, and what was read does not tell how many steps it owes. "
        f"Not read: {told.left_out}.",
        "Compare the end of its log with the steps that you expect. If it is complete, nothing is to be done; else "
        "resume the run. Set training.total_steps in the configuration, so that the next end can be judged.",
        evidence=tuple(_proofs(told)),
    )


def _submitted(told: Told, owed: Owed | None, step: int, job: Submitted, state: str) -> Explanation:
    is_in = f", which {_state_words(state)}" if state else ""
    what = "stopped following" if told.made else "only submitted"
    ended = f"; {sentence(told, owed, step)}" if told.made else ""
    fix = (
        "Make the script wait for its job: remove --no-wait and a final &. While the job is PENDING or RUNNING, "
        "`up --resume-or-start` follows it and starts nothing."
    )
    if job.system != "ray":
        fix = "Make the script wait for its job, such as by sbatch --wait or kubectl wait. Follow this job by hand."
    return Explanation(
        JOB,
        "warning",
        f"its script {what} {job_words(job)}{is_in}, and ended{ended}",
        "The script exited with 0 before the training had ended, and the job goes on without it.",
        fix,
        job_command(job),
        evidence=_of(told, job.id),
    )


def _state_words(state: str) -> str:
    return f"is {state}" if state in ("PENDING", "RUNNING") else f"has ended: {state}"


def _background(title: str, told: Told, left: str) -> Explanation:
    ended = f": {left} still ran, and was ended together with the script" if left else ""
    return Explanation(
        BACKGROUND,
        "warning",
        title,
        f"Its script started a program in the background and ended before that program{ended}.",
        "Make the script wait for its trainer: start it without & and nohup, or with `exec`, or end the script with "
        f"`wait`; {_GO_ON}.",
        evidence=_of(told, "background"),
    )


def _of_data(title: str, told: Told, owed: Owed | None, step: int, passed: Passed) -> Explanation | None:
    """The data loader had no more batches."""
    if owed is None:
        return None
    batches, epochs, key = told.batches, told.epochs, passed.epochs_key
    resumed = told.made == 0 and bool(told.began) and told.began == step
    if batches and epochs and batches * epochs < owed.steps and step >= batches * epochs:
        return _too_few(title, told, owed, batches, epochs, key)
    boundary = batches is None or (told.began or 0) % batches == 0
    if resumed and boundary:
        of = f" ({batches} batches an epoch)" if batches else ""
        return Explanation(
            BOUNDARY,
            "warning",
            title,
            f"It resumed at step {step}{'' if batches else ', probably'} at the end of an epoch{of}: the data loader's "
            "saved state has no batch left, so the trainer had nothing to do.",
            f"Raise {key} by one, if the epochs are used up; else resume from an earlier checkpoint "
            "(trainer.resume_mode=resume_path trainer.resume_from_path=.../global_step_N), or move data.pt out of "
            f"{told.checkpoint or 'the checkpoint'}, so that the data starts from the beginning.",
            evidence=_of(told, "began", "batches"),
        )
    if batches and step and step % batches == 0 and step // batches >= 1:
        return _too_few(title, told, owed, batches, step // batches, key)
    if told.used_up:
        why = f"The data was used up: {told.used_up}"
        fix = f"Raise {key}, or give it more data; {_GO_ON}."
        return Explanation(USED_UP, "warning", title, why, fix, evidence=_of(told, "used_up"))
    if epochs and not batches and owed.source != "its log" and step:
        return Explanation(
            EPOCHS,
            "warning",
            title,
            f"{key} is {epochs}; the data may have been used up after {step} {plural(step, 'step')}.",
            f"If so, raise {key}, or give it more data; {_GO_ON}.",
            evidence=_of(told, "epochs"),
        )
    return None


def _too_few(title: str, told: Told, owed: Owed, batches: int, epochs: int, key: str) -> Explanation:
    needed, made = -(-owed.steps // batches), epochs * batches
    told_epochs = told.epochs is not None
    an = "epoch" if epochs == 1 else "epochs"
    known = f"{key} is {epochs}" if told_epochs else f"{epochs} {an} were read"
    if not told_epochs and epochs == 1:
        known = "1 epoch was read"
    return Explanation(
        EPOCHS,
        "warning",
        title,
        f"The data loader has {batches} batches and {known}: {epochs} x {batches} = {made} {plural(made, 'step')}, "
        f"fewer than {owed.steps} (from {owed.source}).",
        f"Set {key} to at least {needed} ({needed} x {batches} = {needed * batches}), or the number of steps to "
        f"{made}; {_GO_ON}.",
        patch={key: str(needed)} if key.startswith("training.") else {},
        evidence=_of(told, "batches", "epochs"),
    )


def _of(told: Told, *names: str) -> tuple[Evidence, ...]:
    return tuple(told.proofs[name] for name in names if name in told.proofs)


def _proofs(told: Told) -> Iterator[Any]:
    yield from _of(told, "step")
    names = ("total", "bar", "counted", "configured", "asked")
    yield from next((found for name in names if (found := _of(told, name))), ())
    yield from _of(told, "closed")
