"""The cluster in which Harbor makes the pods of a run's own trials: whether there is a way to ask it, whether it
answers, and what this user may do in the namespace. Asked by the client that shows the pods, not by kubectl, which need
not be there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.cluster import NAME, ready_nodes
from liverl.preflight.subject import trainer_variables
from liverl.sandboxes.kubernetes.client import ApiError, Cluster
from liverl.sandboxes.kubernetes.kubeconfig import KubeconfigError, default_path, load

SECONDS = 30.0  # for all questions
PLUGIN_S = 10.0  # of these for a plug-in that gives credentials
# What Harbor does with a pod (ack.py, gke.py and openshift.py of 0.25): verb, resource, and what fails without it.
NEEDED = (
    ("create", "pods", "no sandbox can be made"),
    ("get", "pods", "Harbor cannot see whether a sandbox has started"),
    ("delete", "pods", "sandboxes would stay after their trials"),
    ("create", "pods/exec", "nothing can be run in a sandbox"),
)
# What this program does beside it.
WANTED = (
    ("list", "pods", "what trials have there is not shown, and not swept"),
    ("watch", "pods", "what trials have there is not shown"),
)
_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")  # in a pod: Harbor's classes take it


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Asked with the variables that trials get. ``env``: of the caller."""
    variables = trainer_variables(plan, env)
    given = config.k8s.kubeconfig
    path = Path(given) if given else default_path(variables)
    if not path.exists() and not given:
        yield _without_file(path, variables, env)
        return
    try:
        access = load(path)
    except KubeconfigError as error:
        yield Check(NAME, "fail", str(error), fix=_fix(given, variables, env))
        return
    cluster = Cluster(access, config.k8s.namespace or "", "", variables, PLUGIN_S)
    try:
        yield from asyncio.run(_within(cluster))
    except KubeconfigError as error:
        yield Check(NAME, "fail", str(error), fix="mend the user of that context: trials ask with the same")
    except ApiError as error:
        fix = f"correct the kubeconfig, or see: kubectl --kubeconfig {path} get pods -n {cluster.namespace}"
        yield Check(NAME, "fail", f"{path}: {error}", fix=fix)
    except TimeoutError:
        yield Check(NAME, "fail", f"{path}: {access.server} did not answer within {SECONDS:g} s")


def _without_file(path: Path, variables: Mapping[str, str], env: Mapping[str, str]) -> Check:
    if _TOKEN.exists():
        return Check(
            NAME,
            "skipped",
            "not asked: Harbor takes this pod's service account",
        )
    return Check(NAME, "fail", f"there is no kubeconfig {path}", fix=_fix(None, variables, env))


def _fix(given: str | None, variables: Mapping[str, str], env: Mapping[str, str]) -> str:
    if given:
        return "correct k8s.kubeconfig"
    if env.get("KUBECONFIG") and not variables.get("KUBECONFIG"):
        return (
            "KUBECONFIG is set here, but trials do not inherit it: add it to supervise.pass_env, or set "
            "k8s.kubeconfig"
        )
    return "set k8s.kubeconfig to the file, or write it: the program of the cluster's provider does that"


async def _within(cluster: Cluster) -> list[Check]:
    async with asyncio.timeout(SECONDS), cluster:
        return await _asked(cluster)


async def _asked(cluster: Cluster) -> list[Check]:
    """What the cluster says; one check, and a second one for what only this program would do."""
    where = f"{cluster.server}, namespace {cluster.namespace}"
    if await cluster.has_namespace() is False:
        fix = "create it, or correct k8s.namespace"
        return [Check(NAME, "fail", f"{where}: there is no such namespace", fix=fix)]
    told = await cluster.nodes()
    words = (
        "its nodes may not be listed by this user"
        if told is None
        else ready_nodes(told.decode(errors="replace"))
    )
    if words.startswith("none"):
        return [Check(NAME, "fail", f"{where}: {words}", fix="wait for a node, or use another cluster")]
    may = {(verb, what): await cluster.may(verb, what) for verb, what, _ in (*NEEDED, *WANTED)}
    if all(answer is None for answer in may.values()):
        return [Check(NAME, "skipped", f"{where}: {words}; it does not tell what this user may do")]
    rights = "ask for a role with these rights in the namespace, or use another (k8s.namespace)"
    found = []
    for status, needs in (("fail", NEEDED), ("warn", WANTED)):
        if refused := [one for one in needs if may[one[:2]] is False]:
            lacks = "; ".join(f"{verb} {what} ({why})" for verb, what, why in refused)
            text = f"{where}: this user may not {lacks}"
            found.append(Check(NAME, "fail" if status == "fail" else "warn", text, fix=rights))
    return found or [Check(NAME, "ok", f"{where}: {words}, and this user may do what trials need")]
