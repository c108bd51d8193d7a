"""Relative paths of what is imported."""

from __future__ import annotations

from pathlib import Path

from liverl.config.sizing import TRAIN_FILES, VAL_FILES, files_of
from liverl.importing.builder import Builder
from liverl.importing.values import Place
from liverl.plan.hydra import text as hydra_text

_REWARD = "reward.function"  # a file and a name
_RELATIVE = (
    "a relative path, and no such file near the script: the run looks for it from the folder of the configuration; "
    "write the whole path if that is wrong"
)


def make_absolute(builder: Builder, path: Path) -> None:
    """Relative paths of the source that exist beside it start there; others are told."""
    for key in ("data.train_index", "data.val_index", "model.model_path", "agent.tools", "agent.functions"):
        one = builder.values.get(key)
        if one is None or not _is_relative(one.text):
            continue
        found = _beside(path, one.text)
        if found is not None:
            builder.take(key, found, one.place, one.source, default=one.default)
        elif key != "model.model_path":
            builder.notice(f"{key}: {one.text}", one.place, _RELATIVE)
    one = builder.values.get(_REWARD)
    file, colon, name = one.text.rpartition(":") if one is not None else ("", "", "")
    if one is not None and _is_relative(file):
        found = _beside(path, file)
        if found is not None:
            builder.take(_REWARD, f"{found}{colon}{name}", one.place, one.source, default=one.default)
        else:
            builder.notice(f"{_REWARD}: {one.text}", one.place, _RELATIVE)
    for key in (TRAIN_FILES, VAL_FILES):
        word, place = builder.overrides.get(key, ("", Place("", 0)))
        sign_and_key, _, value = word.partition("=")
        files = files_of(value) if value else None
        if not files or not any(map(_is_relative, files)):
            continue
        placed = [(_beside(path, name) if _is_relative(name) else None) or name for name in files]
        if placed != list(files):
            builder.overrides[key] = f"{sign_and_key}={hydra_text(placed)}", place
        left = [name for name in placed if _is_relative(name)]
        if left:
            builder.notice(f"{key}: {', '.join(left)}", place, _RELATIVE)


def _is_relative(text: str) -> bool:
    return bool(text) and not text.startswith(("/", "~")) and "://" not in text


def _beside(path: Path, name: str) -> str | None:
    """A relative path of the source, if it exists beside it or up to three folders above."""
    folders = (path.absolute().parent, *path.absolute().parents[1:4])
    return next((str(folder / name) for folder in folders if (folder / name).exists()), None)
