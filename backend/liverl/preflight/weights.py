"""Whether a model's weights are complete: all files that its index names, none of them cut off."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from liverl.config import conditions as when
from liverl.config.schema import RunConfig
from liverl.engines import ENGINES
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.model import folder_of, named, will_be_made
from liverl.util.decode import decode_loose_json
from liverl.util.plural import quantity
from liverl.util.regular_file import open_binary, read_regular

NAME = "model weights"
_INDEX = ".index.json"
# The formats in the order in which engines look for them.
_FORMATS = ("safetensors", "bin", "pt", "gguf")
# Of a trainer, not of a model; engines leave them out, too.
_OTHERS = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pt")
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin)")
_POINTER = b"version https://git-lfs"
_LARGEST_HEADER = 100 << 20  # bytes, as safetensors has it
_SHOWN = 3


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Check | None:
    """The weights of the model on this host; None for a model that is part of liverl-tui, or that is not there (the
    check ``model`` tells that)."""
    if when.managed(config) and not ENGINES[config.run.engine].gpus:
        return None
    if will_be_made(config):
        return None
    folder = folder_of(plan, config, env)
    if folder is None:
        name = named(config).name
        return None if os.path.isabs(name) else Check(NAME, "skipped", f"{name} is not on this host yet")
    try:
        return judged(folder)
    except (NotADirectoryError, FileNotFoundError, PermissionError) as error:
        why = f"cannot read {error.filename or folder}: {os.strerror(error.errno or 0)}"
        return Check(NAME, "fail", why, fix="make it readable for this user, or copy the model again")


def judged(folder: Path) -> Check:
    """The weights in ``folder``. Reads the index, and the header of each file.

    Raises:
        OSError: the folder or a file cannot be read.
    """
    names = sorted({*os.listdir(folder)} - {*_OTHERS})
    for form in _FORMATS:
        files = [name for name in names if name.endswith(f".{form}")]
        indices = [name for name in names if name.endswith(f".{form}{_INDEX}")]
        if files or indices:
            return _complete(folder, names, files, indices)
    text = f"{folder} has no weights (files *.{', *.'.join(_FORMATS)})"
    return Check(NAME, "fail", text, fix="download the model again, with its weights")


def _complete(folder: Path, names: Sequence[str], files: Sequence[str], indices: Sequence[str]) -> Check:
    """The files that the indices name: others beside them are not read. Without an index, all, and all of their
    numbers."""
    wanted = set()
    for index in indices:
        try:
            wanted |= _of_index(folder / index)
        except ValueError as error:
            return _fault(folder, f"cannot parse {folder / index}: {error}")
    for name in () if indices else files:
        part = _PART.fullmatch(name)
        number = range(1, int(part[3]) + 1) if part is not None else ()
        wanted |= {name, *(f"{part[1]}-{n:05}-of-{part[3]}.{part[4]}" for n in number if part is not None)}
    missing = sorted(wanted - {*names})
    if missing:
        some = ", ".join(missing[:_SHOWN]) + (
            f" and {len(missing) - _SHOWN} more" if missing[_SHOWN:] else ""
        )
        return _fault(
            folder,
            f"{folder} has {len(wanted) - len(missing)} of {len(wanted)} files of weights; missing: {some}",
        )
    total = 0
    for name in sorted(wanted):
        size = (folder / name).stat().st_size
        why = _damage(folder / name, size)
        if why:
            return _fault(folder, f"{folder / name} {why}", lfs="Git LFS" in why)
        total += size
    checked = "" if min(wanted).endswith(".safetensors") else "; only their presence was looked at"
    return Check(NAME, "ok", f"{quantity(len(wanted), 'file')}, {total / 1e9:.1f} GB{checked}")


def _fault(folder: Path, text: str, *, lfs: bool = False) -> Check:
    fix = f"run git lfs pull in {folder}" if lfs else "download or copy the model again"
    return Check(NAME, "fail", text, fix=fix)


def _of_index(path: Path) -> set[str]:
    """The files that an index names.

    Raises:
        ValueError: it is no index.
    """
    index: Any = decode_loose_json(read_regular(path))
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(name, str) for name in files.values()):
        raise ValueError("it has no weight_map")
    return {*files.values()}


def _damage(path: Path, size: int) -> str:
    """What is wrong with a file of weights of ``size`` bytes; "" if nothing is, as far as its header tells."""
    with open_binary(path) as file:
        begin = file.read(len(_POINTER))
        if begin == _POINTER:
            return "is a pointer of Git LFS, not the weights"
        if not begin:
            return "is empty"
        if not path.name.endswith(".safetensors"):
            return ""
        length = int.from_bytes(begin[:8], "little")
        if len(begin) < 8 or not 0 < length <= min(_LARGEST_HEADER, size):
            return "is no file of safetensors, or is cut off"
        file.seek(8)
        header = file.read(length)
    try:
        tensors: Any = decode_loose_json(header)
        ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except (ValueError, AttributeError, KeyError, IndexError, TypeError):
        return "is no file of safetensors, or is damaged"
    return f"is cut off: it has {size:,} of {wanted:,} bytes" if size < wanted else ""
