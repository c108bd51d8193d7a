"""How far each host is that joins a run: one small file for each, written by it and read by the run's backend."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.regular_file import read_regular

FOLDER = "nodes"  # in the attempt's directory
JoinState = Literal["joining", "joined", "refused", "left"]


class JoinedHost(msgspec.Struct, frozen=True):
    """What a host says of itself. ``why``: a sentence, "" if there is nothing to say; ``pid``: of its ``join``, there
    (of the head's host: of the backend); ``versions``: package -> version that verl's environment has there;
    ``reaches_from``: its address when it reaches the head, "" in what an older version wrote.
    """

    host: str
    ip: str
    pid: int
    state: JoinState
    why: str
    versions: dict[str, str] = {}
    reaches_from: str = ""


def write_state(attempt_dir: Path, state: JoinedHost) -> None:
    """Replace what this host has said before.

    Raises:
        OSError: it cannot be written.
    """
    folder = attempt_dir / FOLDER
    folder.mkdir(exist_ok=True)
    write_json(folder / f"{state.host}.json", msgspec.to_builtins(state))


def read_states(attempt_dir: Path) -> tuple[JoinedHost, ...]:
    """What each host that joins says, by name. A file that is not complete or not ours counts as not there."""
    found = []
    for path in sorted((attempt_dir / FOLDER).glob("*.json")):
        try:
            found.append(decode_json(read_regular(path, 1 << 16), type=JoinedHost))
        except (OSError, ValueError):
            continue
    return tuple(found)
