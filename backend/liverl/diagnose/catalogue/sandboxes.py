"""Rules for the sandboxes of trials: what they have in Docker, and steps whose trials never get as far as their agent.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from liverl.diagnose.tracker import FEWEST, SHOWN, Resolved, Window
from liverl.model import Evidence, SandboxStatus, StepTrials, Symptom
from liverl.util.plural import plural, quantity

AWAY_S = 15.0  # three looks: a daemon that is restarted is back by then
LEFT_S = 15.0  # what Harbor or a sweep is just removing is no longer there by then
SLOW_S = 120.0  # seconds within which a pod starts that has to pull a common image
RECENT_STEPS = 2  # newest steps in which trials that fail matter


def sandboxes_unreachable(window: Window) -> Iterator[Symptom | Resolved]:
    """The daemon that has the sandboxes does not answer. Trials that run go on waiting for it; new ones fail."""
    seen = window.now.sandboxes
    if seen is None or seen.reachable or window.now.state != "running":
        return
    running = seen.running + seen.starting
    if seen.backend == "kubernetes":
        yield Symptom(
            id="sandboxes_unreachable",
            severity="critical",
            title="the pods of the trials cannot be asked about",
            cause=f"{seen.why}; at the last answer there were {quantity(running, 'pod')}: whether they still run is not "
            "known, and if the cluster is away, trials in them wait until their time is over",
            fix=f"check it with: {seen.kubectl or f'kubectl --kubeconfig {seen.server}'} get pods",
            evidence=(Evidence(seen.why),),
            since=seen.since,
        )
        return
    yield Symptom(
        id="sandboxes_unreachable",
        severity="critical",
        title="the Docker of the trials' sandboxes does not answer",
        cause=f"{seen.why}; at the last answer there were {quantity(running, 'sandbox', 'sandboxes')}: trials in them "
        "wait until their time is over, and new ones fail in their setup",
        fix=f"check it with: {_asking(seen.server)}docker info; and its service, such as: systemctl status docker",
        evidence=(Evidence(seen.why),),
        since=seen.since,
    )


def sandboxes_left(window: Window) -> Iterator[Symptom | Resolved]:
    """Containers of trials that are over, or whose worker or Harbor process has died: nobody will end them."""
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
        f"{plural(seen.left, 'it has', 'them has')} died: they hold memory, CPUs and networks of the daemon",
        fix=f"delete {plural(seen.left, 'it', 'them')}: {seen.kubectl} delete pod {' '.join(row.name for row in left[:SHOWN])}"
        if seen.backend == "kubernetes"
        else "with sandboxes.sweep: true they are removed within seconds of such a death, and at the end of the run; "
        "otherwise remove them by id (docker rm -f ID), or after the run with: liverl-tui clean --sandboxes",
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
        evidence=tuple(
            Evidence(
                f"{one.path or one.trial}: {'container' if seen is None or seen.backend == 'docker' else 'pod'} {one.id}"
            )
            for one in ooms[:SHOWN]
        ),
        since=min(one.at for one in ooms),
    )


_TROUBLES = {  # kind -> what the pods are, why, and what to do; the API's own words are the evidence
    "image_pull": ("wait for an image", "the node cannot pull the image of these pods",
                   "check the image's name and tag, and the registry's credentials (imagePullSecrets)"),
    "config": ("cannot be made by their node", "the container of these pods cannot be created or started",
               "correct what the message names, such as a missing Secret, ConfigMap, mount or command"),
    "unschedulable": ("fit on no node", "no node has what these pods ask for",
                      "lower harbor_agent.environment_override_cpus and environment_override_memory_mb, or "
                      "harbor_runtime.num_workers, or add nodes"),
    "crash": ("crash again and again", "a container of these pods ends as soon as it begins", "read its log"),
    "deadline": ("ended by their deadline", "they lived longer than activeDeadlineSeconds, and were killed",
                 "raise k8s.pod_active_deadline_seconds above the time of the longest trial"),
    "evicted": ("evicted", "their node was short of memory or disk, or a pod of higher priority took their place",
                "give the pods requests that they keep to, or fewer trials at once (harbor_runtime.num_workers)"),
    "node_gone": ("lost with their node", "their node was shut down, removed, or does not answer",
                  "see: kubectl get nodes; on spot machines losses are to be expected, and Harbor repeats the trials"),
}  # fmt: skip


def pods_in_trouble(window: Window) -> Iterator[Symptom | Resolved]:
    """What has happened to pods of trials in the last ten minutes: one alert for each kind."""
    seen = window.now.sandboxes
    for kind, (what, cause, fix) in _TROUBLES.items():
        ours = [one for one in (seen.troubles if seen is not None else ()) if one.kind == kind]
        if not ours or seen is None:
            continue
        if kind in ("image_pull", "config", "crash"):
            fix += f"; see: {seen.kubectl} describe pod {ours[0].name}"
        yield Symptom(
            id=f"pods_{kind}",
            severity="warning",
            title=f"{quantity(len(ours), 'pod')} of trials {what}",
            cause=f"{cause}; the rewards of such trials say nothing about the model",
            fix=fix,
            evidence=tuple(
                Evidence(
                    f"{one.path or one.trial}: pod {one.name}{f' on {one.node}' if one.node else ''}, {one.reason}"
                    + (f": {one.message}" if one.message else "")
                )
                for one in ours[:SHOWN]
            ),
            since=min(one.at for one in ours),
        )


def pods_slow_start(window: Window) -> Iterator[Symptom | Resolved]:
    """Pods that have not begun to run after three times the usual time, and at least two minutes."""
    seen = window.now.sandboxes
    if seen is None or seen.backend != "kubernetes" or not seen.reachable:
        return
    most = max(SLOW_S, 3 * (seen.start_s or 0.0))
    in_trouble = {one.name for one in seen.troubles}
    slow = [row for row in seen.rows if row.state == "created" and row.since is not None
            and window.now.at - row.since > most and row.name not in in_trouble]  # fmt: skip
    if not slow:
        return
    usual = f"; half of those before ran within {seen.start_s:.0f} s" if seen.start_s is not None else ""
    yield Symptom(
        id="pods_slow_start",
        severity="warning",
        title=f"{quantity(len(slow), 'pod')} of trials {plural(len(slow), 'starts', 'start')} slowly",
        cause=f"{plural(len(slow), 'it has', 'they have')} waited for more than {most:.0f} s{usual}",
        fix=f"see the events of one: {seen.kubectl} describe pod {slow[0].name}",
        evidence=tuple(
            Evidence(f"{row.path or row.trial}: pod {row.name}, {row.reason or row.phase}")
            for row in slow[:SHOWN]
        ),
        since=min(row.since for row in slow if row.since is not None),
    )


def pods_refused_by_quota(window: Window) -> Iterator[Symptom | Resolved]:
    """A namespace's quota refused pods of recent trials: they were never made, so only the trials tell."""
    heads = [h for h in window.now.trials.newest if not h.earlier and "exceeded quota" in h.failure.lower()]
    if not heads:
        return
    yield Symptom(
        id="pods_refused_by_quota",
        severity="warning",
        title=f"the namespace's quota refused {quantity(len(heads), 'pod')}",
        cause=f"the cluster made no pod for these trials: {heads[0].failure}",
        fix="lower harbor_runtime.num_workers, or ask for a larger quota; see: kubectl describe resourcequota",
        evidence=tuple(Evidence(head.path) for head in heads[:SHOWN]),
        since=min(head.updated_at for head in heads),
    )


def kubeconfig_readable(window: Window) -> Iterator[Symptom | Resolved]:
    """Others than its owner can read the kubeconfig, which holds a token, password or key."""
    seen = window.now.sandboxes
    if seen is None or not seen.readable:
        return
    yield Symptom(
        id="kubeconfig_readable",
        severity="warning",
        title="other users can read the kubeconfig and its key",
        cause=f"the mode of {seen.readable} lets them, and it holds a token, password or key of the cluster",
        fix=f"chmod 600 {seen.readable}",
        evidence=(Evidence(seen.readable),),
    )


def all_fail_in_setup(step: StepTrials) -> bool:
    """Whether all trials of a step that have ended did so by an error in the setup of their sandbox."""
    return step.finished >= FEWEST and step.failed_in.get("setup", 0) == step.finished


def trials_fail_in_setup(window: Window) -> Iterator[Symptom | Resolved]:
    """No trial of a recent step got as far as its agent."""
    now = window.now
    step = next((one for one in now.trials.steps[:RECENT_STEPS] if all_fail_in_setup(one)), None)
    if step is None:
        return
    heads = [
        h
        for h in now.trials.newest
        if h.step == step.step and not h.earlier and h.phase == "setup" and h.error
    ]
    told = Counter(head.failure or head.error for head in heads).most_common(1)
    words = told[0][0] if told else ", ".join(step.failures)
    away = now.sandboxes is not None and not now.sandboxes.reachable
    yield Symptom(
        id="trials_fail_in_setup",
        severity="critical",
        title="no trial gets beyond the setup of its sandbox",
        cause=f"all {step.finished} trials of step {step.step} that have ended failed while their sandbox was made, or "
        f"while the agent was put into it, most of them with {words}: no agent ran, so nothing can be learned"
        + (
            f". {'The cluster' if now.sandboxes is not None and now.sandboxes.backend == 'kubernetes' else 'Docker'} does not answer: {now.sandboxes.why}"
            if away and now.sandboxes is not None
            else ""
        ),
        fix="open one of these trials: its exception has the output of the build; the usual causes are an image that "
        "cannot be built or pulled here, a daemon without free networks, disk or memory, and a setup that needs "
        "access to the internet",
        evidence=tuple(Evidence(head.path) for head in heads[:SHOWN]),
        since=min((head.updated_at for head in heads), default=None),
    )


def _evidence(row: SandboxStatus) -> Evidence:
    state = f"{row.state} {row.exit}" if row.exit is not None else row.state
    if row.phase:
        return Evidence(f"{row.path or row.trial or row.name}: pod {row.name}, {state}")
    return Evidence(f"{row.path or row.trial or row.name}: container {row.id} ({row.name}), {state}")


def _asking(server: str) -> str:
    """The variable by which the docker program finds the daemon, before a command; "" for that of this host."""
    if not server or " " in server:
        return ""
    return f"DOCKER_{'HOST' if '://' in server else 'CONTEXT'}={server} "
