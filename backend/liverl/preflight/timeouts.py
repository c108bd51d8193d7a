"""Whether what contains a trial lives longer than the trial."""

from __future__ import annotations

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.model import Check, Evidence

NAME = "time-outs"
_KEY = "k8s.pod_active_deadline_seconds"
# Harbor's usual limit of a verifier (harbor/models/task/config.py VerifierConfig.timeout_sec), in seconds. A task may
# have another.
_VERIFIER = 600.0


def checks(config: RunConfig) -> Check | None:
    """The life of a sandbox in Kubernetes against agent and verifier; nothing for other sandboxes, which have no such
    limit."""
    given = config.harbor_agent
    if not when.harbor_class(config) or "kubernetes" not in str(given.environment_import_path).lower():
        return None
    life = config.k8s.pod_active_deadline_seconds
    agent = given.trial_timeout * given.agent_timeout_multiplier
    verifier = _VERIFIER * given.verifier_timeout_multiplier if given.verifier_enabled else 0.0
    start = config.k8s.pod_startup_timeout
    rows = (Evidence(f"agent {agent:g} s + verifier {verifier:g} s; a pod may take {start:g} s to start"),)
    need = agent + verifier
    if life > need:
        return Check(
            NAME, "ok", f"a pod lives {life:g} s, agent and verifier take {need:g} s at most", evidence=rows
        )
    text = f"{_KEY} is {life:g} s, but agent and verifier may take {need:g} s: pods end before their trials are graded"
    wanted = f"{need + start:g}"
    fix = f"set {_KEY} to at least {wanted}"
    return Check(
        NAME,
        "fail" if life <= agent else "warn",
        text,
        evidence=rows,
        fix=fix,
        patch={_KEY: wanted},
        guess=True,
    )
