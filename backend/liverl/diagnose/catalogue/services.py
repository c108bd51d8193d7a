"""Rules for services that ended, or do not serve any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from liverl.causes.inputs.refused import Refused, refused
from liverl.causes.inputs.shown import unchecked, words_of
from liverl.causes.verdict.unexplained import UNEXPLAINED
from liverl.diagnose import failures
from liverl.diagnose.catalogue import agents
from liverl.diagnose.tracker import DOWN, GOING, SHOWN, Resolved, Window
from liverl.model import Cause, Evidence, ServiceStatus, Snapshot, Symptom
from liverl.rundir.commands import resume_command, set_options
from liverl.rundir.log_names import read_log_name

# Seconds for which a failure is reported after the restart: long enough to be seen by a person
RESTARTED_S = 300.0
DOWN_ALERTS = {  # what each means
    "service_failed": "a service has ended with an error, and is not started again",
    "service_gave_up": "a service was started again after each failure, until the failures came too often",
}
_GOING_AGAIN = ("preparing", "starting", "ready", "degraded")


def service_down(window: Window) -> Iterator[Symptom | Resolved]:
    """It is critical where the run needs the service, and a warning where the trials go on without it.

    - the reason quotes a line of a log -> correct what that line names; more of it: ``liverl-tui logs SERVICE -n 50``
    - the reason names a port, a file, a time-out or a value, and no line -> correct that; ``liverl-tui check`` looks
      at ports, GPUs, disk and files again
    - no reason is known -> ``liverl-tui doctor`` lists what may have caused it, with a command that tells each from
      the others
    - then, while the run goes on (``liverl-tui status`` says ``running``) -> ``liverl-tui restart SERVICE``
    - then, once the run has ended -> the command that the alert shows: ``liverl-tui up --resume RUN``, with the value
      that it corrects
    """
    now = window.now
    for service in now.services:
        if service.state not in DOWN:
            continue
        name, again = service.name, now.state in GOING and service.kind != "environment"
        severity: Literal["warning", "critical"] = "warning" if now.spares(service) else "critical"
        cause = f"{_cause(window, service)}{_spared(now, service)}"
        fix, evidence = _down_fix(window, service, again), _log_evidence(window, service)
        action = f"restart {name}" if again else None
        patch, guess = _patch(window, service), _guess(window, service)
        if service.state == "gave_up":
            yield Symptom(
                id=f"service_gave_up:{name}",
                severity=severity,
                title=f"{name} failed too often",
                cause=cause,
                fix=fix,
                evidence=evidence,
                since=service.since,
                action=action,
                patch=patch,
                guess=guess,
            )
        else:
            yield Symptom(
                id=f"service_failed:{name}",
                severity=severity,
                title=f"{name} has failed",
                cause=cause,
                fix=fix,
                evidence=evidence,
                since=service.since,
                action=action,
                patch=patch,
                guess=guess,
            )


def run_failed(window: Window) -> Iterator[Symptom | Resolved]:
    """The run fails although no service did, such as by a replica of verl that died and was not replaced.

    - the alert ends in a command -> give that command: it has the value that corrects the reason, and the run root
      where it is another one
    - it only says to correct something -> correct it first, then ``liverl-tui up --resume RUN``
    - the reason is not clear -> ``liverl-tui doctor`` shows the line that proves it, or lists what may have caused it
    """
    now, cause = window.now, _with_trials(window, window.beside.failure)
    if cause is None or any(s.name == cause.service and s.state in DOWN for s in now.services):
        return
    own = cause.fix.rstrip(".") or "correct what the reason names"
    yield Symptom(
        id=f"{failures.RUN}:{cause.service}",
        severity="critical",
        title="the run has failed",
        cause=f"{words_of(cause)}{_why(cause)}",
        fix=own if _has_command(own) else f"{own}; then: {_resume(now, {} if cause.guess else cause.patch)}",
        evidence=_proof(cause),
        since=cause.at,
        patch=cause.patch,
        guess=cause.guess,
    )


def _spared(now: Snapshot, service: ServiceStatus) -> str:
    """That the trials go on without a service; empty if they need it."""
    if not now.spares(service):
        return ""
    return f"; the trials go on, as they go through {now.carrier_words.name}"


def _down_fix(window: Window, service: ServiceStatus, again: bool) -> str:
    own, patch = _own_fix(window, service), _patch(window, service)
    if _has_command(own):
        return own
    resume = _resume(window.now, {} if _guess(window, service) else patch)
    return f"{own}; then restart {service.name}" if again else f"{own}; then: {resume}"


def _has_command(fix: str) -> bool:
    return "liverl-tui up " in fix or "liverl-tui fix " in fix


def _resume(now: Snapshot, patch: Mapping[str, str]) -> str:
    """The command that goes on with the run, with the values of ``patch``."""
    sets = f" {set_options(patch)}" if patch else ""
    return f"{resume_command(Path(now.run_dir))}{sets}"


def _found(window: Window, service: ServiceStatus) -> Cause | None:
    """Why the service ended, as its logs and its trials tell; None while that is not known."""
    return _with_trials(window, window.beside.causes.get(service.name))


def _with_trials(window: Window, cause: Cause | None) -> Cause | None:
    """The cause, with what the trials tell of it."""
    if cause is None or cause.id != agents.NO_TOKENS:
        return cause
    alert = next((s for s in agents.zero_tool_calls(window) if isinstance(s, Symptom)), None)
    return agents.with_trials(cause, alert)


def _never_started(window: Window, service: ServiceStatus) -> Refused | None:
    """Why the service could not even be started, as the start itself says; None if its log knows more. What is only
    guessed, as the log says nothing, gives way to it."""
    cause = _found(window, service)
    return refused(service.why, service.name) if cause is None or cause.id in UNEXPLAINED else None


def _own_fix(window: Window, service: ServiceStatus, otherwise: str = "") -> str:
    """What is to be done about the cause. ``otherwise``: while that is not known."""
    cause, never_started = _found(window, service), _never_started(window, service)
    if never_started is not None:
        return never_started.fix.rstrip(".")
    if cause is not None and cause.fix:
        return cause.fix.rstrip(".")
    if service.kind == "environment" and not otherwise:
        return "correct what the reason names"  # an environment has no log
    return otherwise or f"fix the error shown in the log of {service.name}"


def proxy_down(window: Window) -> Iterator[Symptom | Resolved]:
    """The proxy or the sessions, through which the trials' requests go, served before, do not serve now, and are being
    started again. Every trial waits for that.

    - it serves again within a minute -> nothing: requests are sent again; ``liverl-tui events --since 10m`` shows why
      it ended
    - the reason quotes a line of its log -> correct what that line names: ``liverl-tui logs SERVICE -n 50``
    - the reason names a port or a file -> correct that; it is started again by itself
    """
    now = window.now
    service = now.carrier_down if now.state in GOING else None
    if service is not None and service.state not in DOWN:
        name = service.name
        trials = now.trials.running
        waiting = f": {trials} trial{'s wait' if trials != 1 else ' waits'}" if trials else ""
        failure = _clause(service.failure or service.why)
        doing = service.stage or service.state.replace("_", " ")
        besides = _besides(window, service, failure)
        why = f"{besides}. " if besides else ""
        yield Symptom(
            id=f"proxy_down:{name}",
            severity="critical",
            title=f"{name} is down{waiting}; {failure}",
            cause=f"{why}It is {doing} now. Replicas are up, but no request reaches them until {name} serves",
            fix=_own_fix(
                window, service, "wait until it serves again; if it fails again, fix the error in its log"
            ),
            evidence=_explained(window, service) or _log_evidence(window, service),
            since=service.down_since,
            action=f"restart {name}" if service.state == "backing_off" else None,
        )


def service_restarted(window: Window) -> Iterator[Symptom | Resolved]:
    """A service failed in the last ``RESTARTED_S`` seconds and was started again. While it is down
    (``service_failed``) or waits for its next start (``service_backing_off``), other alerts say so.

    - it serves again, and this was the first time -> nothing; ``liverl-tui logs SERVICE -n 50`` shows why it ended
    - the reason quotes a line of its log -> correct what that line names, or it fails again
    - the reason names a port, a file or a value -> correct that; ``liverl-tui fix`` does it where a key corrects it
    """
    now = window.now
    for service in now.services if now.state in GOING else ():
        failed_at, name = service.failed_at, service.name
        if failed_at is None or now.at - failed_at >= RESTARTED_S or service.state not in _GOING_AGAIN:
            continue
        if service is now.carrier_down:
            continue
        serves = service.state == "ready"
        failure = _clause(service.failure or "unknown exit")
        title = f"{name} failed ({failure}); it {'serves again' if serves else 'is being restarted'}"
        if (before := _by_earlier_backend(window, f"service_restarted:{name}", name, failed_at)) is not None:
            yield replace(before, title=title, since=failed_at)
            continue
        besides = _besides(window, service, failure)
        why = f"{besides}; " if besides else ""
        yield Symptom(
            id=f"service_restarted:{name}",
            severity="warning",
            title=title,
            cause=f"{why}it was restarted {service.restarts} "
            f"time{'' if service.restarts == 1 else 's'} in this attempt",
            fix=_own_fix(
                window, service, "read the end of the log of its previous process, unless you killed it"
            ),
            evidence=_explained(window, service) or _previous_log(service),
            since=failed_at,
            patch=_patch(window, service),
            guess=_guess(window, service),
        )


def _by_earlier_backend(window: Window, alert: str, service: str, failed_at: float) -> Symptom | None:
    """The alert as an earlier backend has raised it, which read the log of the process that failed at ``failed_at``;
    None if this one knows the cause, or it is of an earlier failure."""
    before = window.beside.earlier.get(alert)
    if before is None or service in window.beside.causes or before.since is None or before.since < failed_at:
        return None
    return before


def _besides(window: Window, service: ServiceStatus, failure: str) -> str:
    """Why the process before the present one ended, without how it ended, which the title says."""
    return _ended(window, service).removeprefix(failure).lstrip(",; ")


def _clause(failure: str) -> str:
    """How a process ended, without what follows from that."""
    return failure.partition(";")[0]


def _previous_log(service: ServiceStatus) -> tuple[Evidence, ...]:
    """The log of the process before the present one, as evidence; nothing if there is none."""
    name = read_log_name(service.log)
    if name is None or name.generation < 2:
        return ()
    return (Evidence("", log=str(name._replace(generation=name.generation - 1))),)


def _by_whom(window: Window, failure: str) -> str:
    """Who may have sent a SIGKILL; empty after another failure."""
    if "SIGKILL" not in failure:
        return ""
    oom = window.beside.oom
    return f", by the kernel's OOM killer ({oom})" if oom else ", by somebody or by the kernel's OOM killer"


def service_backing_off(window: Window) -> Iterator[Symptom | Resolved]:
    """A service failed and waits for its next restart.

    - the reason quotes a line of its log -> correct what that line names: ``liverl-tui logs SERVICE -n 50``
    - the reason names a port, a file or a value -> correct that
    - it is corrected, and you do not want to wait for the next start -> ``liverl-tui restart SERVICE``
    """
    now = window.now
    for service in now.services:
        name = f"service_backing_off:{service.name}"
        if service.state == "backing_off":
            yield Symptom(
                id=name,
                severity="warning",
                title=f"{service.name} keeps failing",
                cause=f"{_cause(window, service)}{_spared(now, service)}",
                fix=f"{_own_fix(window, service)}; {service.name} is restarted automatically with increasing delays, "
                "until it has failed too often",
                evidence=(
                    *_log_evidence(window, service),
                    Evidence(f"{service.restarts} restarts so far", value=service.restarts),
                ),
                action=f"restart {service.name}",
                patch=_patch(window, service),
                guess=_guess(window, service),
            )
        elif service.state in ("stopped", *DOWN):
            yield Resolved(name)
    for name in window.removed(lambda snapshot: snapshot.services):
        yield Resolved(f"service_backing_off:{name}")


def _cause(window: Window, service: ServiceStatus) -> str:
    cause = _found(window, service)
    if cause is None or _never_started(window, service) is not None:
        return f"{service.why}{_by_whom(window, service.why)}"
    of = f"{cause.service}: " if cause.service not in (None, service.name) else ""
    return f"{of}{cause.text}{_why(cause)}"


def _why(cause: Cause) -> str:
    return f". {cause.why}" if cause.why and cause.id not in UNEXPLAINED else ""  # there it says no more


def _ended(window: Window, service: ServiceStatus) -> str:
    """Why the process before the present one ended."""
    if service.name in window.beside.causes:
        return _cause(window, service).rstrip(".")
    return f"{service.failure or service.why}{_by_whom(window, service.failure or service.why)}"


def _patch(window: Window, service: ServiceStatus) -> dict[str, str]:
    never_started = _never_started(window, service)
    if never_started is not None:
        return never_started.patch
    cause = _found(window, service)
    return {} if cause is None else cause.patch


def _explained(window: Window, service: ServiceStatus) -> tuple[Evidence, ...]:
    """The proof of why a process ended, and the checks where that is unknown; nothing if its logs were not read."""
    cause = _found(window, service)
    return () if cause is None else _proof(cause)


def _proof(cause: Cause) -> tuple[Evidence, ...]:
    return (*cause.evidence, *_to_run(cause))[:SHOWN]


def _to_run(cause: Cause) -> Iterator[Evidence]:
    """The command that tells more, and the checks of what may be the cause."""
    if cause.command:
        yield Evidence(f"run: {cause.command}")
    for guess in unchecked(cause):
        yield Evidence(f"{guess.title}; check: {guess.check}")


def _guess(window: Window, service: ServiceStatus) -> bool:
    cause = window.beside.causes.get(service.name)
    return cause is not None and cause.guess and _never_started(window, service) is None


def _log_evidence(window: Window, service: ServiceStatus) -> tuple[Evidence, ...]:
    cause = _found(window, service)
    found = [] if cause is None else list(cause.evidence)
    if cause is not None and cause.log is not None and not found:
        found = [Evidence("" if cause.offset is None else cause.text, cause.log, cause.offset)]
    if service.log is not None and not any(one.log for one in found):
        found.insert(0, Evidence("", log=service.log))
    if not _exit_told(service, found) and (cause is None or cause.text != service.why):
        found.append(Evidence(f"{service.name}: {service.why}"))
    if cause is not None:
        found += _to_run(cause)
    return tuple(found[:SHOWN])


def _exit_told(service: ServiceStatus, evidence: Iterable[Evidence]) -> bool:
    """Whether the evidence says how the service ended, and its state says no more."""
    plain = service.exit is not None and service.why == service.exit.words()
    return plain and any(one.offset is None and one.text.startswith(f"{service.name} ") for one in evidence)
