"""Rules for the sandboxes of trials: what they have in Docker, and steps whose trials never get as far as their agent.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from liverl.agents.harbor.compose_words import BUILD_ERROR
from liverl.diagnose.catalogue import pods
from liverl.diagnose.catalogue.groups import heads_of
from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, Window
from liverl.model import Evidence, SandboxesStatus, SandboxStatus, Snapshot, StepTrials, Symptom, TrialHead
from liverl.util.plural import plural, quantity

PODS = "kubernetes"  # ``SandboxesStatus.backend`` of sandboxes that are pods
AWAY_S = 15.0  # three looks: a daemon that is restarted is back by then
LEFT_S = 15.0  # what Harbor or a sweep is just removing is no longer there by then
_LARGER = "base=10.200.0.0/16,size=24"  # 256 networks, where Docker's own ranges have about 30
RECENT_STEPS = 2  # newest steps in which trials that fail matter


def sandboxes_unreachable(window: Window) -> Iterator[Symptom | Resolved]:
    """The daemon that has the sandboxes does not answer. Trials that run go on waiting for it; new ones fail.

    - the command names ``DOCKER_HOST`` or ``DOCKER_CONTEXT`` -> the variable of the run points there: if that host is
      right, look at its service; if not, correct the variable and resume the run
    - it answers for you, and not for the run -> the user of the run may not use the daemon's socket: add the user to
      its group (``id`` shows the groups), and start the run from a new login
    - it answers nobody -> the daemon is down: ``systemctl status docker``, then ``journalctl -u docker -n 50``
    """
    seen = window.now.sandboxes
    if seen is None or seen.reachable or window.now.state != "running":
        return
    running = seen.running + seen.starting
    if seen.backend == PODS:
        yield pods.unreachable(seen)
        return
    yield Symptom(
        id="sandboxes_unreachable",
        severity="critical",
        title="the Docker of the trials' sandboxes does not answer",
        cause=f"{seen.why}; at the last answer there were {quantity(running, 'sandbox', 'sandboxes')}: trials in them "
        "wait until their time is over, and new ones fail in their setup",
        fix=f"check it with: {_asking(seen)} info; and its service, such as: systemctl status docker",
        evidence=(Evidence(seen.why),),
        since=seen.since,
    )


def sandboxes_left(window: Window) -> Iterator[Symptom | Resolved]:
    """Containers of trials that are over, or whose worker or Harbor process has died. Nothing else will end them.

    - the sandboxes are containers of Docker, and ``sandboxes.sweep`` is true -> nothing, unless they are still there
      a minute later: then ``docker rm -f ID``
    - the sandboxes are containers of Docker, and it is false -> ``docker rm -f ID`` now, or ``liverl-tui clean
      --sandboxes`` after the run
    - the sandboxes are pods -> give the command that the alert shows
    """
    seen = window.now.sandboxes
    if seen is None or not seen.left:
        return
    left = [row for row in seen.rows if row.left]
    number = quantity(seen.left, "sandbox", "sandboxes")
    yield Symptom(
        id="sandboxes_left",
        severity="warning",
        title=f"{number} without a living trial",
        cause=f"{number} of this run {plural(seen.left, 'is', 'are')} still there although "
        f"{plural(seen.left, 'its trial is', 'their trials are')} over, or the process that ran "
        f"{plural(seen.left, 'it has', 'them has')} died: they hold memory and CPUs"
        + ("" if seen.backend == PODS else " and networks of the daemon"),
        fix=_how_to_remove(seen, [row.name for row in left[:SHOWN]]),
        evidence=tuple(_evidence(row) for row in left[:SHOWN]),
        since=min((row.since for row in left if row.since is not None), default=None),
    )


def sandbox_oom(window: Window) -> Iterator[Symptom | Resolved]:
    """A process in a sandbox was killed because the memory of the sandbox was used up."""
    seen = window.now.sandboxes
    ooms = seen.ooms if seen is not None else ()
    if not ooms:
        return
    yield Symptom(
        id="sandbox_oom",
        severity="warning",
        title=f"memory used up in {quantity(len(ooms), 'sandbox', 'sandboxes')}",
        cause="the kernel killed a process in them because their limit of memory was reached: the agent's command, or "
        "the verifier's tests, ended with 137, and the trial's reward says nothing about the model",
        fix="raise harbor_agent.environment_override_memory_mb, or memory_mb in the task.toml of these tasks",
        evidence=tuple(Evidence(f"{one.path or one.trial}: {_thing(seen)} {one.id}") for one in ooms[:SHOWN]),
        since=min(one.at for one in ooms),
    )


def sandbox_networks_used_up(window: Window) -> Iterator[Symptom | Resolved]:
    """The daemon can create no further network, and each new sandbox needs one.

    - ``docker network ls`` has networks of runs that have ended -> ``liverl-tui clean --sandboxes``
    - it has networks of others, which nobody uses -> ``docker network rm NAME`` for each, by its name
    - all of them are in use -> lower ``harbor_runtime.num_workers``, or give the daemon more addresses, for which it
      is restarted
    """
    seen = window.now.sandboxes
    if seen is None or not seen.reachable or seen.networks_free != 0 or window.now.state != "running":
        return
    yield Symptom(
        id="sandbox_networks_used_up",
        severity="warning",
        title="Docker has no network left for another sandbox",
        cause=f"all address ranges of the daemon are in use, {quantity(seen.networks, 'network')} of them by this run: "
        "a trial that begins now fails in its setup with a message about address pools",
        fix="lower harbor_runtime.num_workers, remove networks that nobody uses by name (docker network ls, docker "
        "network rm NAME; those of runs that have ended: liverl-tui clean --sandboxes), or give the daemon more: "
        f"dockerd --default-address-pool {_LARGER}",
        evidence=(Evidence(f"{_asking(seen)} network ls"),),
    )


def sandboxes_address_gone(window: Window) -> Iterator[Symptom | Resolved]:
    """Sandboxes reach the sessions at an address that this machine no longer has. It was the address of a bridge of
    Docker: the bridge goes away with its daemon, and gets another address if the daemon's ``bip`` is changed."""
    seen = window.now.sandboxes
    if seen is None or not seen.address_gone or window.now.state != "running":
        return
    yield Symptom(
        id="sandboxes_address_gone",
        severity="critical",
        title=f"{seen.address_gone} is gone: sandboxes reach no session",
        cause=f"{seen.address_gone}, at which sandboxes reach the sessions of this run, is no address of this machine "
        "any more: Docker was restarted with another bridge, or its bridge was deleted (a second daemon with --bridge "
        "none does that); agents in sandboxes get no answer until their time is over",
        fix=f"give the bridge its address again (ip address show docker0; dockerd --bip {seen.address_gone}/16), or "
        "stop the run and start its next attempt, which takes the new address where proxy.host is auto",
        evidence=(Evidence(f"ip address show to {seen.address_gone}"),),
    )


def all_fail_in_setup(step: StepTrials) -> bool:
    """Whether all trials of a step that have ended did so by an error in the setup of their sandbox."""
    return step.finished >= FEWEST and step.failed_in.get("setup", 0) == step.finished


def sandbox_build_failed(window: Window) -> Iterator[Symptom | Resolved]:
    """The image of a task's sandbox cannot be built. One trial is enough to raise it, even if that trial is run again:
    a build takes minutes, and the line that failed fails again."""
    now = window.now
    failed = _not_built(now)
    if not failed:
        return
    words, count = Counter(head.sandbox_error for head in failed).most_common(1)[0]
    tasks = list(dict.fromkeys(head.task for head in failed))
    all_of = any(all_fail_in_setup(step) for step in now.trials.steps[:RECENT_STEPS])
    more = f", and {quantity(len(tasks) - 1, 'other task')}" if len(tasks) > 1 else ""
    yield Symptom(
        id="sandbox_build_failed",
        severity="critical" if all_of else "warning",
        title=f"the image of {quantity(len(tasks), 'task')} cannot be built"
        if len(tasks) > 1
        else "the image of a sandbox cannot be built",
        cause=f"the build for {next(head.task for head in failed if head.sandbox_error == words)}{more} failed in "
        f"{quantity(len(failed), 'trial')}, {plural(count, 'once', f'{count} times')} with: {words}",
        fix="correct that line of the task's environment/Dockerfile, and try it by hand where the daemon runs: docker "
        "build TASK/environment; the next trial of the task builds it again, without a restart of the run",
        evidence=tuple(Evidence(f"{head.path}: {head.sandbox_error}") for head in failed[:SHOWN]),
        since=min(head.last_at for head in failed),
    )


def _not_built(now: Snapshot) -> list[TrialHead]:
    """The trials of recent steps, and of validations beside them, whose image could not be built; newest first."""
    recent = {step.step for step in now.trials.steps[:RECENT_STEPS]} | {None}
    return [h for h in now.trials.newest if h.error == BUILD_ERROR and h.sandbox_error and h.step in recent]


def trials_fail_in_setup(window: Window) -> Iterator[Symptom | Resolved]:
    """No trial of a recent step got as far as its agent. It is not raised if images that cannot be built are the
    reason: ``sandbox_build_failed`` says that.

    - the exception says ``pull`` or ``manifest`` -> the image cannot be pulled here: check its name, and ``docker
      pull IMAGE`` on the host of the daemon
    - the exception has the output of a build -> the Dockerfile of the task fails: ``docker build TASK/environment``
      shows it
    - the exception says ``address pools`` -> the daemon has no network left: see ``sandbox_networks_used_up``
    - the exception says ``no space`` or ``Killed`` -> the disk or the memory of the daemon's host is full: ``df -h``,
      ``free -h``
    - the exception says that a name cannot be resolved, or a download timed out -> the setup needs the internet: put
      what it installs into the image
    """
    now = window.now
    step = next((one for one in now.trials.steps[:RECENT_STEPS] if all_fail_in_setup(one)), None)
    if step is None:
        return
    heads = [head for head in heads_of(now, step) if head.phase == "setup" and head.error]
    if heads and all(head.error == BUILD_ERROR for head in heads):
        return
    told = Counter(head.sandbox_error or head.failure or head.error for head in heads).most_common(1)
    words = told[0][0] if told else ", ".join(step.failures)
    yield Symptom(
        id="trials_fail_in_setup",
        severity="critical",
        title="no trial gets beyond the setup of its sandbox",
        cause=f"all {step.finished} trials of step {step.step} that have ended failed while their sandbox was made, or "
        f"while the agent was put into it, most of them with {words}: no agent ran, so nothing can be learned"
        + _silence(now.sandboxes),
        fix="open one of these trials: its exception has the output of the build; the usual causes are an image that "
        "cannot be built or pulled here, a daemon without free networks, disk or memory, and a setup that needs "
        "access to the internet",
        evidence=tuple(Evidence(head.path) for head in heads[:SHOWN]),
        since=min((head.updated_at for head in heads), default=None),
    )


def _how_to_remove(seen: SandboxesStatus, names: list[str]) -> str:
    if seen.backend == PODS:
        return f"delete {plural(len(names), 'it', 'them')}: {seen.kubectl} delete pod {' '.join(names)}"
    return (
        "with sandboxes.sweep: true they are removed within seconds of such a death, and at the end of the run; "
        "otherwise remove them by id (docker rm -f ID), or after the run with: liverl-tui clean --sandboxes"
    )


def _silence(seen: SandboxesStatus | None) -> str:
    if seen is None or seen.reachable:
        return ""
    return f". {'The cluster' if seen.backend == PODS else 'Docker'} does not answer: {seen.why}"


def _thing(seen: SandboxesStatus | None) -> str:
    return "pod" if seen is not None and seen.backend == PODS else "container"


def _evidence(row: SandboxStatus) -> Evidence:
    state = f"{row.state} {row.exit}" if row.exit is not None else row.state
    if row.phase:
        return Evidence(f"{row.path or row.trial or row.name}: pod {row.name}, {state}")
    return Evidence(f"{row.path or row.trial or row.name}: container {row.id} ({row.name}), {state}")


def _asking(seen: SandboxesStatus) -> str:
    """How a user calls the docker program for the daemon."""
    server = seen.server
    if seen.docker or not server or " " in server:
        return seen.docker or "docker"
    return f"DOCKER_{'HOST' if '://' in server else 'CONTEXT'}={server} docker"  # of an older version
