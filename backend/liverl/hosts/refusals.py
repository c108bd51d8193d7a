"""Why a start of Ray on a host that joins has failed, from what it printed: whether to try again. Pure.

The texts are those of Ray 2.60, seen on real nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from liverl.plan.ray import TIMED_OUT

_VERSIONS = re.compile(
    r"Version mismatch: The cluster was started with:\s*(?P<head>.*?)\s*This process on node \S+ was started with:\s*"
    r"(?P<here>Ray: \S+\s+Python: \S+)",
    re.DOTALL,
)
_PORT = re.compile(r"ValueError: (Ray component \S+ is trying to use a port number.*)")


@dataclass(frozen=True)
class Refusal:
    """``why``: one sentence. ``again``: whether the same start may succeed later."""

    why: str
    again: bool


def refusal(output: str, token_file: str, node_ip: str, own_ip: str) -> Refusal:
    """Why ``ray start`` ended, from all that it printed. ``node_ip``: the address of this host that it was given;
    ``own_ip``: the one from which this host reaches the head."""
    versions = _VERSIONS.search(output)
    if versions is not None:
        head, here = (" ".join(versions[name].split()) for name in ("head", "here"))
        return Refusal(
            f"the head runs {head}, and this host {here}: both need the same versions", again=False
        )
    if "InvalidAuthToken" in output:
        return Refusal(f"the head refused the token in {token_file}", again=False)
    port = _PORT.search(output)
    if port is not None:
        return Refusal(f"ray.worker_ports: {' '.join(port[1].split())}", again=False)
    if "mistakenly been marked as dead by the GCS" in output:
        if node_ip != own_ip:
            words = (
                f"the head cannot reach {node_ip}: wrong interface; use --node-ip {own_ip}, or leave it out"
            )
            return Refusal(words, again=False)
        words = f"the head could not reach this host at {node_ip} and declared it dead; is a firewall between them?"
        return Refusal(words, again=True)
    for words, why in TIMED_OUT.items():
        if words in output:
            return Refusal(why, again=True)
    if "Failed to connect to GCS" in output:
        return Refusal("the head did not answer", again=True)
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
    return Refusal(f"ray start ended: {last:.300}" if last else "ray start ended without a word", again=True)
