"""Checkpoints: ``global_step_N/`` with actor/ and data.json, completed by one rename."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from liverl.embedded.policy import Policy, dump_logits
from liverl.embedded.trainer.grpo import AdamState
from liverl.util.atomic_file import write_atomic
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.json_file import write_json
from liverl.util.modes import make_directory, new_directory
from liverl.util.regular_file import read_regular
from liverl.util.remove_tree import remove_tree

_NAME = re.compile(r"global_step_(\d+)$")
_LATEST = "latest_checkpointed_iteration.txt"


class DataState(msgspec.Struct):
    """State of task sampling and shuffling."""

    global_step: int = 0
    epoch: int = 0
    position: int = 0  # number of tasks used in this epoch
    seed: int = 0
    rng_state: tuple[int, tuple[int, ...], float | None] | None = None


class Checkpoint(msgspec.Struct):
    """A complete checkpoint."""

    path: Path
    policy: Policy
    adam: AdamState
    data: DataState


class _Actor(msgspec.Struct):
    version: int
    logits: dict[str, dict[str, float]]


def prepare(root: Path, policy: Policy, adam: AdamState, data: DataState) -> Path:
    """Write the checkpoint of ``data.global_step`` to a temporary directory and return it; see ``commit``.

    Raises:
        OSError: it cannot be written.
    """
    temporary = root / f".global_step_{data.global_step}.tmp"
    remove_tree(temporary)  # what is left is an error of the next line
    make_directory(root)
    new_directory(temporary)
    new_directory(temporary / "actor")
    actor = f'{{"version":{policy.version},"logits":{dump_logits(policy.logits)}}}\n'
    write_atomic(temporary / "actor" / "policy.json", actor.encode(), sync=True)
    write_json(temporary / "actor" / "optim.json", adam, sync=True)
    write_json(temporary / "data.json", data, sync=True)
    return temporary


def commit(temporary: Path) -> Path:
    """Rename a prepared checkpoint to its final name: readers see it complete or not at all.

    Raises:
        OSError: the rename failed.
    """
    final = temporary.with_name(temporary.name.removeprefix(".").removesuffix(".tmp"))
    if final.exists():  # written by an earlier attempt
        for error in remove_tree(final):
            raise error
    temporary.rename(final)
    write_atomic(final.parent / _LATEST, final.name.removeprefix("global_step_").encode(), sync=True)
    return final


def newest(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest complete checkpoint (None if there is none), and messages about unusable newer ones."""
    problems: list[str] = []
    if not root.is_dir():
        return None, problems
    by_step = [
        (int(m[1]), path) for path in root.iterdir() if (m := _NAME.match(path.name)) and path.is_dir()
    ]
    for _, path in sorted(by_step, reverse=True):
        try:
            return _read(path), problems
        except (OSError, *BAD_JSON) as error:
            problems.append(f"{path} is not complete: {error}")
    return None, problems


def _read(path: Path) -> Checkpoint:
    actor = decode_json(read_regular(path / "actor" / "policy.json"), type=_Actor)
    adam = decode_json(read_regular(path / "actor" / "optim.json"), type=AdamState)
    data = decode_json(read_regular(path / "data.json"), type=DataState)
    return Checkpoint(path, Policy(actor.logits, actor.version), adam, data)
