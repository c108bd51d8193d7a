"""The file with the replicas that sessions may use. The backend writes it, the service reads it at its start and on
SIGHUP, and reports the digest of what it has read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from liverl.util.decode import decode_json

REPLICAS = "sessions/replicas.json"  # in the run directory


class Replica(msgspec.Struct, frozen=True, omit_defaults=True):
    """``url``: of its server, without a path; ``draining``: it keeps its sessions and gets no new ones.

    ``deaths``: how often a process behind this URL has ended although nobody had asked for it: no command, no weight
    update, no known fault of its host. ``gone``: it is not to be used; the entry only tells its ``deaths``. It is also
    ``draining``, for a reader that does not know ``gone``."""

    url: str
    model: str
    draining: bool = False
    deaths: int = 0
    gone: bool = False


def replica_file(
    backends: Sequence[str], draining: Sequence[str], model: str, deaths: Mapping[str, int] | None = None
) -> bytes:
    """The file's content. ``backends``, ``draining``: URLs; ``model``: the served name of all of them; ``deaths``: by
    URL, those of replicas that are no longer listed too."""
    left = dict(deaths or {})
    listed = [Replica(url, model, deaths=left.pop(url, 0)) for url in backends]
    leaving = [Replica(url, model, draining=True, deaths=left.pop(url, 0)) for url in draining]
    gone = [Replica(url, model, draining=True, deaths=n, gone=True) for url, n in left.items() if n]
    return msgspec.json.encode([*listed, *leaving, *gone])


def deaths_in(replicas: Sequence[Replica]) -> dict[str, int]:
    """The deaths that a file tells, by URL, without those of none."""
    return {replica.url: replica.deaths for replica in replicas if replica.deaths > 0}


def read_replicas(data: bytes) -> list[Replica]:
    """The replicas in a file or in the body of a request.

    Raises:
        msgspec.DecodeError: it is no list of replicas.
    """
    return decode_json(data, type=list[Replica])


def file_digest(data: bytes) -> str:
    """What the service reports of the file that it has read."""
    return hashlib.sha256(data).hexdigest()[:16]
