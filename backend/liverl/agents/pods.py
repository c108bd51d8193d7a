"""How the pods of Harbor's sandboxes are found: their labels, and the selector of a run. For Python 3.10."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

# Of every pod; its value is harbor_agent.pod_name_prefix. LiveRL's pages also name harbor-managed, which no pod has.
POD_LABEL = "harbor-run"
LIST_PODS = f"kubectl get pods -l {POD_LABEL}"
POD_RUN_ID, POD_TRIAL, POD_ATTEMPT = "liverl.run-id", "liverl.trial", "liverl.attempt"
RUN_SELECTOR = f"{POD_RUN_ID}="  # begins a selector that only pods of one run meet
LONGEST = 63  # characters of a label's value in Kubernetes
# Harbor's own environments in clusters, by type: the labels that their pods have (Harbor 0.24 to 0.26, and ack's own
# argument ``pod_labels`` for ours).
_OWN = {"gke": "app=sandbox", "openshift": "app=harbor"}
CLUSTER_TYPES = ("ack", *_OWN)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def label_value(text: str) -> str:
    """A text as the value of a label, 16 hex digits: values have 63 characters at most, of few kinds."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def pod_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a container as those of a pod."""
    return {name: label_value(value) for name, value in labels.items()}


def selector_of(agent: Mapping[str, Any], run_id: str) -> str:
    """By which labels the API is asked for a run's pods; those of other runs may have them too, except for type ack.
    ``agent``: section ``harbor_agent``.

    Raises:
        ValueError: ``pod_name_prefix`` can be no label.
    """
    if agent.get("environment_type") == "ack":
        return f"{RUN_SELECTOR}{label_value(run_id)}"
    if own := _OWN.get(agent.get("environment_type") or ""):
        return own
    prefix = agent.get("pod_name_prefix") or ""
    if not _VALUE.fullmatch(prefix):
        found = f"{len(prefix)} characters" if len(prefix) > LONGEST else repr(prefix)
        raise ValueError(
            f"harbor_agent.pod_name_prefix: found {found}, expected at most {LONGEST} letters, digits, dots, dashes "
            "and underscores, the value of a label in Kubernetes: no pod can be made with it"
        )
    return f"{POD_LABEL}={prefix}" if prefix else POD_LABEL


def is_pod_of(names: tuple[str, ...], trial: str) -> bool:
    """Whether a pod with these names is one of a trial: Harbor makes them from the trial's name, which ends in random
    digits, in lower case, with dashes for all other characters."""
    wanted = _plain(trial)
    return bool(wanted) and any(f"-{wanted}-" in f"-{_plain(name)}-" for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
