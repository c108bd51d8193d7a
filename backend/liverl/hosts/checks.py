"""What each node of a run's Ray cluster has to have before the trainer starts, and what one lacks. Pure.

verl's main process, its agent loops and its workers are on any node: what only one of them does not see ends the run
somewhere in the middle, with an error that names no host. ``join`` checks its own host before Ray starts there; this
is asked through Ray, from each node, so it also holds for a cluster that others have started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from liverl.hosts.lacks import CLOCK_S, PACKAGES
from liverl.plan.spec import NodeChecks
from liverl.util.plural import quantity

REACH_S = 5.0  # seconds that a connection from a node may take
SYSTEM = ("ray", *PACKAGES)
# The packages that a run imports from the same place on each node: others of the same version do the same.
_ORIGINS = ("verl", "vllm", "ray")
_CHECKOUT = "a checkout that one node has on its PYTHONPATH is not what the others run"


class NodeFacts(msgspec.Struct, frozen=True):
    """What a node says of itself (``hosts/node_facts.py``). ``at``: its clock, Unix seconds; ``asked``: the
    clock of the host that asked, before and after; ``shm_total``: bytes of /dev/shm; ``unseen``: key -> why its path
    cannot be used; ``unreached``: name -> why nothing answers; ``versions`` and ``origins``: by package, "" = none."""

    host: str
    python: str
    at: float
    asked: tuple[float, float]
    shm_total: int = 0
    unseen: dict[str, str] = {}
    unreached: dict[str, str] = {}
    versions: dict[str, str] = {}
    origins: dict[str, str] = {}


class Lacks(msgspec.Struct, frozen=True):
    """``fatal``: what keeps the trainer from starting, ``minor``: what does not; a sentence each, without the host.
    ``gpus``: why the host does not count, "" if it does: verl may put processes without a GPU there all the same."""

    fatal: tuple[str, ...] = ()
    minor: tuple[str, ...] = ()
    gpus: str = ""

    @property
    def words(self) -> str:
        """What to say of the host: what keeps it out, else what does not; "" if there is nothing."""
        return "; ".join(filter(None, (*self.fatal, self.gpus))) or "; ".join(self.minor)


def question(checks: NodeChecks, values: Mapping[str, str]) -> dict[str, Any]:
    """What a node is asked. ``values``: the texts of ``checks`` with their placeholders filled in."""
    return {
        "paths": {key: values.get(path, path) for key, path in checks.paths.items()},
        "writable": list(checks.writable),
        "reach": {name: values.get(address, address) for name, address in checks.reach.items()},
        "packages": list(SYSTEM),
        "seconds": REACH_S,
    }


def gpus_lack(checks: NodeChecks, resources: Mapping[str, float]) -> str:
    """What is wrong with the number of GPUs that Ray was told of a node; "" if there are enough. verl counts those of
    all nodes together, and then waits for ever for so many on each."""
    have = int(resources.get("GPU", 0))
    if have >= checks.gpus:
        return ""
    return (
        f"Ray has {quantity(have, 'GPU')} there, and the run needs {checks.gpus} on each host "
        "(infrastructure.ngpus_per_node); start Ray there with --num-gpus, or lower that key"
    )


def lacks(
    checks: NodeChecks,
    asked: Mapping[str, Any],
    resources: Mapping[str, float],
    facts: NodeFacts,
    first: NodeFacts | None,
) -> Lacks:
    """What a node lacks. ``asked``: the ``question``; ``resources``: what Ray was told of it; ``first``: the facts of
    the node with which it is compared, None for that one itself."""
    fatal, minor = _fatal(checks, asked, facts, first), _minor(checks, facts, first)
    return Lacks(tuple(fatal), tuple(minor), gpus_lack(checks, resources))


def _fatal(
    checks: NodeChecks, asked: Mapping[str, Any], facts: NodeFacts, first: NodeFacts | None
) -> Iterator[str]:
    for key, why in facts.unseen.items():
        path = asked["paths"].get(key, "")
        yield f"cannot use {path} ({key}): {why}; mount or copy it there, under the same path as on the other hosts"
    for name, why in facts.unreached.items():
        address = asked["reach"].get(name, "")
        yield f"cannot reach {name} at {address}: {why}; set proxy.host to an address that leads here from every host"
    for name, version in facts.versions.items():
        other = version if first is None else first.versions.get(name, version)
        if first is not None and version != other:
            words = f"{name} {version}" if version else f"no {name}"
            yield f"has {words}, and {first.host} has {other or 'none'}; install the same version on both"
    origin = facts.origins.get("verl", "")
    if checks.source and not _below(origin, checks.source):
        found = origin or "nowhere"
        yield f"imports verl from {found}, and not from verl.source, {checks.source}; put that folder there, too"
    elif not origin:
        yield "does not find the package verl; install it in the environment of Ray there"


def _minor(checks: NodeChecks, facts: NodeFacts, first: NodeFacts | None) -> Iterator[str]:
    if facts.shm_total < checks.shm:
        yield (
            f"has {facts.shm_total >> 20} MiB of /dev/shm, and {checks.shm >> 20} MiB are needed (Ray's objects, and "
            "NCCL beside them); mount it larger there (docker run --shm-size)"
        )
    began, ended = facts.asked
    ahead = max(facts.at - ended, 0.0) or min(facts.at - began, 0.0)
    if abs(ahead) > CLOCK_S:
        side = "ahead of" if ahead > 0 else "behind"
        yield f"has a clock that is {abs(ahead):.0f} s {side} this host's; set it (chronyc makestep)"
    for name in _ORIGINS:
        here, there = facts.origins.get(name, ""), first.origins.get(name, "") if first is not None else ""
        if first is not None and here and there and here != there:
            yield f"imports {name} from {here}, and {first.host} from {there}: {_CHECKOUT}"


def _below(origin: str, folder: str) -> bool:
    return origin.startswith(folder.rstrip("/") + "/")
