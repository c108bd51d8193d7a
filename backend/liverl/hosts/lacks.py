"""What a host lacks that is to join a run: paths that all hosts must see, GPUs, and the versions of the head's host.

Ray counts what a node is said to have and looks at none of this: verl would wait for ever for the GPUs, and its main
process, which is on any host, would not find the model.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping

from liverl.hosts import node_facts
from liverl.hosts.cluster import Cluster
from liverl.observe.gpu.ledger import allowed_gpus
from liverl.observe.gpu.sampler import GpuSampler
from liverl.procs.asking import ask_program, last_words
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.plural import quantity

# Packages of which all hosts need the same version. Ray itself refuses another version of Ray or Python.
PACKAGES = ("verl", "vllm", "torch", "transformers", "TransferQueue")
ASK_S = 60.0  # a cold network disk is slow
CLOCK_S = 10.0  # seconds by which clocks may differ; HTTP tells whole ones
_HTTP_S = 3.0
_ASK = (
    "import importlib.metadata as m, json, sys\n"
    "def v(n):\n"
    "  try: return m.version(n)\n"
    "  except m.PackageNotFoundError: return ''\n"
    "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
)


def unseen(cluster: Cluster) -> list[str]:
    """The paths of the run that this host does not see or must not read, each with its key and the reason."""
    paths = {"the Python of verl's environment": cluster.python, **cluster.paths}
    return [f"{paths[key]} ({key}): {why}" for key, why in node_facts.unseen(paths, []).items()]


def too_few_gpus(needed: int, env: Mapping[str, str]) -> str:
    """What is wrong with the number of GPUs of this host that ``env`` permits; "" if there are enough."""
    if not needed:
        return ""
    sampler = GpuSampler()
    try:
        gpus, note = sampler.sample()
    finally:
        sampler.close()
    allowed, notes = allowed_gpus(gpus, env)
    if len(allowed) >= needed:
        return ""
    said = "; ".join(filter(None, (note, *notes)))
    may = f"{quantity(len(allowed), 'GPU')} that it may use" + (f" ({said})" if said else "")
    return f"infrastructure.ngpus_per_node is {needed}, and this host has {may}"


def no_interface(name: str, own: Mapping[str, bool]) -> str:
    """What is wrong with the network interface that the run uses on every host; "" if it is there, or none is named.
    ``own``: those of this host, and whether each is up. Pure."""
    if not name or own.get(name):
        return ""
    if name in own:
        return f"network.interface is {name}, and that interface is down here"
    listed = ", ".join(sorted(one for one in own if one != "lo")) or "none but lo"
    return f"network.interface is {name}, which this host does not have: it has {listed}"


def versions(cluster: Cluster) -> dict[str, str]:
    """Package -> version in verl's environment on this host; "" = it is not there.

    Raises:
        ValueError: its Python cannot be asked; the text says why.
    """
    words = [cluster.python, "-B", "-c", _ASK, *PACKAGES]
    try:
        done = ask_program(words, ASK_S, env={**os.environ, **cluster.env}, cwd="/")
        if done.returncode:
            raise ValueError(last_words(done))
        return decode_json(done.stdout.splitlines()[-1], type=dict[str, str])
    except (OSError, subprocess.SubprocessError, IndexError, *BAD_JSON) as error:
        raise ValueError(str(error)) from error


def differing(head: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Which versions differ between the head's host and this one; "" if none does. Pure.

    A host whose versions are not known has none, and nothing is said of it.
    """
    if not head or not here:
        return ""
    other = [
        f"{name} {here.get(name) or 'is missing'} (there: {head[name] or 'not installed'})"
        for name in head
        if here.get(name, "") != head[name]
    ]
    return ", ".join(other)


def clock_difference(cluster: Cluster) -> str:
    """By how much the clock of this host differs from that of the head's; "" if by little, or if it is not told."""
    from email.utils import parsedate_to_datetime  # on a host that joins, not in each backend
    from http.client import HTTPConnection, HTTPException

    host, _, port = cluster.dashboard.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=_HTTP_S)
    try:
        connection.request("GET", "/api/version")
        told = connection.getresponse().getheader("Date") or ""
        ahead = time.time() - parsedate_to_datetime(told).timestamp()
    except (OSError, HTTPException, ValueError):
        return ""
    finally:
        connection.close()
    if abs(ahead) <= CLOCK_S:
        return ""
    return f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of the head's host"
