"""Checkpoints on disk, of verl or the embedded trainer: which are whole, and what is missing of others.

verl 0.9.1 writes ``global_step_N/actor/`` (and ``critic/``), then ``global_step_N/data.pt``, and last the number N to
``latest_checkpointed_iteration.txt`` (``trainer/ppo/v1/trainer_base.py``). In ``actor/`` FSDP has one file of each kind
for each GPU and ``fsdp_config.json``; Megatron has ``ckpt_contents.json``, written last, which names all parts."""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from liverl.observe.checkpoints import LATEST
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_loose_json
from liverl.util.plural import plural, quantity
from liverl.util.regular_file import open_binary, read_regular
from liverl.util.tree_size import measure

State = Literal["complete", "incomplete", "unknown"]
Format = Literal["fsdp", "megatron", "embedded", "unknown"]
_STEP = re.compile(r"global_step_(\d{1,9})")
# What ``prune`` renames a checkpoint to before it removes it: one that was killed meanwhile leaves this name.
REMOVED = re.compile(r"\.global_step_\d{1,9}\.removed")
_SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d{1,6})_rank_(\d{1,6})\.pt")
_FSDP, _MEGATRON = "fsdp_config.json", "ckpt_contents.json"
_EMBEDDED = ("policy.json", "optim.json")
_MOST_NAMED = 3  # missing files that are named


class Role(msgspec.Struct, frozen=True):
    """What was saved of one model: ``actor`` or ``critic``. ``world_size``: GPUs that it was saved with; None if it
    does not tell. ``problem``: why it is not whole; empty if it is."""

    name: str
    format: Format
    world_size: int | None = None
    problem: str = ""


class CheckpointFiles(msgspec.Struct, frozen=True):
    """One ``global_step_N``. ``bytes``: on the disk; ``roles``: what is saved in it; ``why``: why it is not complete,
    or why that is not known; empty for a complete one; ``uncounted``: why ``bytes`` are not all, empty if they are."""

    step: int
    path: str
    state: State
    why: str
    files: int
    bytes: int
    roles: tuple[Role, ...]
    saved_at: float  # Unix seconds: when the newest of its own entries was written
    uncounted: str = ""

    @property
    def format(self) -> Format:
        """The format of the policy."""
        return next((role.format for role in self.roles if role.name == "actor"), "unknown")

    @property
    def world_size(self) -> int | None:
        """GPUs with which the policy was saved, and must be resumed; None if it does not tell."""
        return next((role.world_size for role in self.roles if role.name == "actor"), None)


def latest_step(base: Path) -> tuple[int | None, str]:
    """The step in ``latest_checkpointed_iteration.txt``, and why there is none: the end of a sentence."""
    try:
        return int(read_regular(base / LATEST)[:32]), ""
    except FileNotFoundError:
        return None, f"there is no {LATEST}, which the trainer writes after each complete checkpoint"
    except ValueError:
        return None, f"{LATEST} holds no number"
    except OSError as error:
        return None, f"{LATEST} cannot be read: {error.strerror or error}"


def is_checkpoint(path: Path) -> bool:
    """Whether ``path`` is the folder of a step. A link is none."""
    return _STEP.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def checkpoint_steps(base: Path) -> dict[int, Path]:
    """Step -> its folder, by rising step. Links are left out.

    Raises:
        OSError: ``base`` cannot be listed.
    """
    found = {}
    for entry in os.scandir(base):
        name = _STEP.fullmatch(entry.name)
        if name and entry.is_dir(follow_symlinks=False):
            found[int(name[1])] = Path(entry.path)
    return dict(sorted(found.items()))


def half_removed(base: Path) -> tuple[Path, ...]:
    """What a ``prune`` that was killed has left.

    Raises:
        OSError: ``base`` cannot be listed.
    """
    names = sorted(name for name in os.listdir(base) if REMOVED.fullmatch(name))
    return tuple(base / name for name in names)


def read_checkpoint(step: int, folder: Path, latest: int | None, why_none: str) -> CheckpointFiles:
    """Look at one checkpoint. ``latest``, ``why_none``: what ``latest_step`` says. Reads the names, the small files of
    JSON, and the ends of the large files.

    Raises:
        OSError: the folder cannot be read.
    """
    roles = tuple(_roles(folder))
    state, why = _state(step, folder, roles, latest, why_none)
    size = measure(folder)
    newest = max(
        [os.stat(folder).st_mtime, *(e.stat(follow_symlinks=False).st_mtime for e in os.scandir(folder))]
    )
    return CheckpointFiles(step, str(folder), state, why, size.files, size.bytes, roles, newest, size.problem)


def _state(
    step: int, folder: Path, roles: tuple[Role, ...], latest: int | None, why_none: str
) -> tuple[State, str]:
    if not roles:
        gone = (folder / "data.pt").is_file() and latest is not None and step <= latest
        limit = "its weights are gone: verl removes them where trainer.max_actor_ckpt_to_keep is set"
        return "incomplete", limit if gone else "it has no actor/ folder: nothing was saved of the policy"
    broken = next((role for role in roles if role.problem), None)
    if broken is not None:
        return "incomplete", f"{broken.name}/: {broken.problem}"
    unknown = next((role for role in roles if role.format == "unknown"), None)
    if unknown is not None:
        return (
            "unknown",
            f"{unknown.name}/ has neither the layout of FSDP nor that of Megatron in verl 0.9",
        )
    data = "data.json" if roles[0].format == "embedded" else "data.pt"
    if not (folder / data).is_file():
        return "incomplete", f"{data} is missing, which is written after the weights"
    if latest is None:
        return "unknown", f"its files are whole, but {why_none}"
    if step > latest:
        return (
            "unknown",
            f"its files are whole, but {LATEST} names step {latest}: the trainer has not confirmed it",
        )
    return "complete", ""


def _roles(folder: Path) -> Iterator[Role]:
    for name in ("actor", "critic"):
        path = folder / name
        try:
            entries = sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield _role(name, path, entries)


def _role(name: str, path: Path, entries: list[str]) -> Role:
    shards = [found for entry in entries if (found := _SHARD.fullmatch(entry))]
    if _MEGATRON in entries:
        return _megatron(name, path)
    if shards or _FSDP in entries:
        return _fsdp(name, path, entries, shards)
    if any(entry in _EMBEDDED for entry in entries):
        return Role(name, "embedded", problem=_missing([e for e in _EMBEDDED if e not in entries]))
    if {"dist_ckpt", "model", "optimizer", "extra", "transformer_config.json"} & set(entries):
        words = f"{_MEGATRON} is missing, which Megatron's part of verl writes last"
        if "dist_ckpt" in entries:  # the layout before verl's schema 2
            words = "it has the layout of verl before 0.8, of which nothing tells that it is whole"
        return Role(name, "megatron", problem=words)
    return Role(name, "unknown", problem="" if entries else "it is empty")


def _fsdp(name: str, path: Path, entries: list[str], shards: list[re.Match[str]]) -> Role:
    """Each kind of which a file was saved needs one of each GPU; ``save_contents`` decides which kinds there are."""
    if _FSDP not in entries:
        return Role(name, "fsdp", problem=f"{_FSDP} is missing, which rank 0 writes last")
    config = _json(path / _FSDP)
    size = config.get("world_size") if isinstance(config, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return Role(name, "fsdp", problem=f"{_FSDP} does not tell the number of GPUs (world_size)")
    kinds = sorted({found[1] for found in shards if int(found[2]) == size})
    if not kinds:
        others = sorted({int(found[2]) for found in shards})
        has = f"has files of {', '.join(map(str, others))}" if others else "has none"
        return Role(name, "fsdp", size, f"{_FSDP} says {quantity(size, 'GPU')}, and the folder {has}")
    wanted = [f"{kind}_world_size_{size}_rank_{rank}.pt" for kind in kinds for rank in range(size)]
    there = set(entries)
    if missing := [file for file in wanted if file not in there]:
        return Role(name, "fsdp", size, _missing(missing))
    if cut := [file for file in wanted if not _whole(path / file)]:
        verb = plural(len(cut), "is", "are")
        return Role(name, "fsdp", size, f"{_named(cut)} {verb} cut off: no whole file of torch.save")
    return Role(name, "fsdp", size)


def _megatron(name: str, path: Path) -> Role:
    manifest = _json(path / _MEGATRON)
    contents = manifest.get("contents") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(contents, dict):
        return Role(name, "megatron", problem=f"{_MEGATRON} cannot be read")
    size = manifest.get("world_size")
    size = size if isinstance(size, int) and not isinstance(size, bool) else None
    places = sorted({str(part.get("path")) for part in contents.values() if isinstance(part, dict)})
    inside = [place for place in places if not os.path.isabs(place) and ".." not in place.split("/")]
    missing = [place for place in inside if not _has_something(path / place)]
    return Role(name, "megatron", size, _missing(missing))


def _has_something(path: Path) -> bool:
    try:
        return bool(os.listdir(path)) if path.is_dir() else path.stat().st_size > 0
    except OSError:
        return False


def _whole(path: Path) -> bool:
    """Whether a file of ``torch.save`` has its end: it is a ZIP archive, whose directory stands last."""
    try:
        with open_binary(path) as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and zipfile.is_zipfile(file)
    except OSError:
        return False


def _json(path: Path) -> Any:
    try:
        return decode_loose_json(read_regular(path))
    except (OSError, *BAD_JSON):
        return None


def _missing(names: list[str]) -> str:
    return f"{_named(names)} {plural(len(names), 'is', 'are')} missing" if names else ""


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
