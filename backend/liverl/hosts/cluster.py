"""``cluster.json`` of a run directory: what ``plan.ray`` tells the hosts that join a run's own Ray head."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.rundir.layout import CLUSTER
from liverl.util.decode import decode_json
from liverl.util.private_file import NotPrivate, read_private

_LARGEST = 1 << 20  # bytes


class Cluster(msgspec.Struct, frozen=True):
    """A run's Ray head, and how a node of it is started: ``flags`` of ``ray start``, and the variables of its workers.

    ``address`` and ``dashboard`` are ``host:port``; ``secret_env``: variable -> file with its value; ``pass_env``: as
    in ``ServiceSpec``; ``hosts``: number of hosts that the run expects, the head's included;
    ``paths``: key of the configuration -> path that each host must see; ``gpus``: number that each must have;
    ``interface``: name of the network interface that each must have, "" = any.
    """

    address: str
    dashboard: str
    python: str
    token_file: str
    attempt_dir: str
    flags: tuple[str, ...]
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    unset_env: tuple[str, ...] = ()
    pass_env: tuple[str, ...] = ()
    hosts: int = 1
    paths: dict[str, str] = {}
    gpus: int = 0
    interface: str = ""

    @property
    def host(self) -> str:
        """The head's IP address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The head's port."""
        return int(self.address.rpartition(":")[2])


def read_cluster(run_dir: Path) -> Cluster | None:
    """What the run's head has told; None while it has told nothing.

    Raises:
        NotPrivate: the file, or that of the token, could be read by others, or is not the caller's.
        ValueError: the file is damaged.
    """
    path = run_dir / CLUSTER
    if not path.exists():
        return None
    cluster = decode_json(read_private(path, _LARGEST), type=Cluster)
    read_private(Path(cluster.token_file), _LARGEST)
    return cluster


__all__ = ["Cluster", "NotPrivate", "read_cluster"]
