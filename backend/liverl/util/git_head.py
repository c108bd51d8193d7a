"""The commit that a working tree is at, read from git's files: git itself need not be installed."""

from __future__ import annotations

import re
from pathlib import Path

from liverl.util.regular_file import read_text

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST = 16 << 20  # bytes of a file of git's that is read


def git_head(folder: Path) -> str | None:
    """The hash of the commit that is checked out in the repository around ``folder``; None if there is none, or it
    cannot be read. Changes that are not committed are not seen."""
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            try:
                return _head(place / ".git")
            except (OSError, ValueError):
                return None
    return None


def _head(git: Path) -> str | None:
    if git.is_file():  # of a worktree or a submodule: "gitdir: PATH"
        git = git.parent / read_text(git, _MOST).partition(":")[2].strip()
    head = read_text(git / "HEAD", _MOST).strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    name = head.partition(":")[2].strip()
    common = git / "commondir"
    roots = [git, git / read_text(common, _MOST).strip()] if common.is_file() else [git]
    for root in roots:
        try:
            found = read_text(root / name, _MOST).strip()
        except OSError:
            continue
        return found if _COMMIT.fullmatch(found) else None
    packed = read_text(roots[-1] / "packed-refs", _MOST).splitlines()
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
