"""The file with the replicas that sessions may use. The backend writes it, the service reads it at its start and on
SIGHUP, and reports the digest of what it has read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

REPLICAS = "sessions/replicas.json"  # in the run directory


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """``url``: of its server, without a path; ``draining``: it keeps its sessions and gets no new ones."""

    url: str
    model: str
    draining: bool = False


def replica_file(backends: Sequence[str], draining: Sequence[str], model: str) -> bytes:
    """The file's content. ``backends``, ``draining``: URLs; ``model``: the served name of all of them."""
    listed = [Replica(url, model) for url in backends]
    return msgspec.json.encode([*listed, *(Replica(url, model, draining=True) for url in draining)])


def read_replicas(data: bytes) -> list[Replica]:
    """The replicas in a file or in the body of a request.

    Raises:
        msgspec.DecodeError: it is no list of replicas.
    """
    return msgspec.json.decode(data, type=list[Replica])


def file_digest(data: bytes) -> str:
    """What the service reports of the file that it has read."""
    return hashlib.sha256(data).hexdigest()[:16]
