"""The Kubernetes cluster of a launch script: whether it answers with the script's kubeconfig, has a node that is ready,
and permits pods. As ``kubectl get nodes`` and ``kubectl auth can-i create pods`` of LiveRL's dryrun.sh, but by raw
requests: kubectl then asks for no list of resources, which it would store in the home directory."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_service, variables_of
from liverl.procs.asking import NotEndedError, ask_program, last_words
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_loose_json

NAME = "cluster"
SECONDS = 10.0  # for each answer, as in dryrun.sh
_NO_CACHE = f"--cache-dir={os.devnull}"
_NODES = "/api/v1/nodes?limit=500"
# Creates nothing: the answer is all there is
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_KUBECONFIG, _NAMESPACE, _SANDBOXES = "K8S_KUBECONFIG", "K8S_NAMESPACE", "HARBOR_ENVIRONMENT_IMPORT_PATH"


class KubectlAnswer(msgspec.Struct, frozen=True):
    """What kubectl printed. ``why``: why there is no answer, empty if there is one; ``hangs``: none came in time."""

    text: str = ""
    why: str = ""
    hangs: bool = False


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Nothing where the script gets no kubeconfig, or its sandboxes are Docker's."""
    script = main_service(plan)
    variables = variables_of(script, env)
    given = variables.get(_KUBECONFIG, "")
    if not given or "docker" in variables.get(_SANDBOXES, "").lower():
        return
    kubeconfig = Path(script.cwd.replace("{run_dir}", plan.run_dir), given)
    if elsewhere(config):
        yield Check(NAME, "skipped", f"{given}: the command runs on another host")
    elif not kubeconfig.is_file():
        yield Check(NAME, "skipped", f"not asked: there is no file {kubeconfig}")
    elif shutil.which("kubectl", path=variables.get("PATH", os.defpath)) is None:
        yield Check(NAME, "skipped", "not asked: there is no program kubectl on PATH")
    else:
        yield from _ask(kubeconfig, variables)


def _ask(kubeconfig: Path, env: Mapping[str, str]) -> Iterator[Check]:
    namespace = env.get(_NAMESPACE) or "default"
    command = ["kubectl", "--kubeconfig", str(kubeconfig), f"--request-timeout={SECONDS:g}s", _NO_CACHE]
    nodes = ask([*command, "get", "--raw", _NODES], env)
    refused = "forbidden" in nodes.why.lower()  # a user of one namespace may not list nodes
    if nodes.why and not refused:
        fix = f"correct k8s.kubeconfig, or see: {shlex.join([*command[:3], 'get', 'nodes'])}"
        yield Check(NAME, "fail", f"{kubeconfig}: {nodes.why}", fix=fix)
        return
    words = "its nodes may not be listed by this user" if refused else ready_nodes(nodes.text)
    if words.startswith("none"):
        yield Check(NAME, "fail", f"{kubeconfig}: {words}", fix="wait for a node, or use another cluster")
        return
    review = {"namespace": namespace, "verb": "create", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": review},
    }
    allowed = ask([*command, "create", "--raw", _ACCESS, "-f", "-"], env, json.dumps(body))
    yield _permitted(kubeconfig, namespace, words, allowed)


def ready_nodes(text: str) -> str:
    """How many of a NodeList's nodes are ready, in words."""
    items = _loaded(text).get("items")
    nodes = [node for node in items if isinstance(node, dict)] if isinstance(items, list) else []
    ready = sum(_is_ready(node) for node in nodes)
    if not ready:
        return f"none of its {len(nodes)} nodes is ready"
    return f"{ready} of {len(nodes)} nodes are ready"


def _is_ready(node: Mapping[str, Any]) -> bool:
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    found = [one for one in conditions if isinstance(one, dict)] if isinstance(conditions, list) else []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in found)


def _permitted(kubeconfig: Path, namespace: str, words: str, answer: KubectlAnswer) -> Check:
    if answer.why:
        text = f"{kubeconfig}: {words}; whether it permits pods in namespace {namespace} is not known: {answer.why}"
        return Check(NAME, "skipped", text)
    status = _loaded(answer.text).get("status")
    if isinstance(status, dict) and status.get("allowed") is True:
        return Check(NAME, "ok", f"{kubeconfig}: {words}, and it permits pods in namespace {namespace}")
    if not isinstance(status, dict) or not isinstance(status.get("allowed"), bool):
        return Check(NAME, "skipped", f"{kubeconfig}: {words}; it does not tell whether it permits pods")
    fix = "use a namespace in which this user may create pods (k8s.namespace), or ask for the right"
    return Check(
        NAME, "fail", f"{kubeconfig}: this user may not create pods in namespace {namespace}", fix=fix
    )


def _loaded(text: str) -> Mapping[str, Any]:
    try:
        document = decode_loose_json(text.encode())
    except BAD_JSON:
        return {}
    return document if isinstance(document, dict) else {}


def ask(argv: list[str], env: Mapping[str, str], stdin: str = "") -> KubectlAnswer:
    """Run kubectl; after ``SECONDS`` it is ended with all that it has started, such as a plug-in for credentials."""
    try:
        done = ask_program(argv, SECONDS, env=env, stdin=stdin)
    except NotEndedError as error:
        waits = f": the program {error.waits_for}, which it started, has not ended" if error.waits_for else ""
        return KubectlAnswer(why=f"no answer within {SECONDS:g} s{waits}", hangs=True)
    except OSError as error:
        return KubectlAnswer(why=f"kubectl cannot be run: {error.strerror or error}")
    if done.returncode:
        return KubectlAnswer(
            why=last_words(done) if done.stderr.strip() else f"kubectl failed (exit {done.returncode})"
        )
    return KubectlAnswer(done.stdout)
