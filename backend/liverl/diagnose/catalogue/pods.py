"""Rules for the sandboxes of trials that are pods of a Kubernetes cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, SandboxesStatus, Symptom
from liverl.util.plural import plural, quantity

SLOW_S = 120.0  # seconds within which a pod starts that has to pull a common image
_TROUBLES = {  # kind -> what the pods are, why, and what to do; the API's own words are the evidence
    "image_pull": ("wait for an image", "the node cannot pull the image of these pods",
                   "check the image's name and tag, and the registry's credentials (imagePullSecrets)"),
    "config": ("cannot be made by their node", "the container of these pods cannot be created or started",
               "correct what the message names, such as a missing Secret, ConfigMap, mount or command"),
    "unschedulable": ("fit on no node", "no node has what these pods ask for",
                      "lower harbor_agent.environment_override_cpus and environment_override_memory_mb, or "
                      "harbor_runtime.num_workers, or add nodes"),
    "crash": ("crash again and again", "a container of these pods ends as soon as it begins",
              "read why it ended (kubectl logs POD --previous), and correct the image or its command"),
    "deadline": ("ended by their deadline", "these pods lived longer than activeDeadlineSeconds, and were killed",
                 "raise k8s.pod_active_deadline_seconds above the time of the longest trial"),
    "evicted": ("evicted",
                "the node of these pods was short of memory or disk, or a pod of higher priority took their place",
                "give the pods requests that they keep to, or fewer trials at once (harbor_runtime.num_workers)"),
    "node_gone": ("lost with their node", "the node of these pods was shut down, removed, or does not answer",
                  "see: kubectl get nodes; on spot machines losses are to be expected, and Harbor repeats the trials"),
}  # fmt: skip


IN_TROUBLE = {f"pods_{kind}": cause for kind, (_, cause, _) in _TROUBLES.items()}


def unreachable(seen: SandboxesStatus) -> Symptom:
    """The API of the cluster gives no answer."""
    number = quantity(seen.running + seen.starting, "pod")
    return Symptom(
        id="sandboxes_unreachable",
        severity="critical",
        title="the pods of the trials cannot be asked about",
        cause=f"{seen.why}; at the last answer there were {number}: whether they still run is not known, and if the "
        "cluster is away, trials in them wait until their time is over",
        fix=f"check it with: {seen.kubectl or f'kubectl --kubeconfig {seen.server}'} get pods",
        evidence=(Evidence(seen.why),),
        since=seen.since,
    )


def pods_in_trouble(window: Window) -> Iterator[Symptom | Resolved]:
    """It counts what has happened to pods of trials in the last ten minutes. The rewards of such trials say nothing
    about the model.

    - pods_unschedulable: the message says ``Insufficient cpu`` or ``Insufficient memory``, and one pod asks for more
      than a node has -> lower ``harbor_agent.environment_override_cpus`` or ``environment_override_memory_mb``
    - pods_unschedulable: a node has room for one, but not for all -> lower ``harbor_runtime.num_workers``, or add
      nodes
    - pods_unschedulable: the message names a taint, a selector or an affinity -> no node of the right kind is there:
      ask who runs the cluster
    """
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
    """A namespace's quota refused pods of recent trials. Such pods were never made, so that only the trials show it."""
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
        fix=f"let nobody else read it: chmod 600 {seen.readable}",
        evidence=(Evidence(seen.readable),),
    )
