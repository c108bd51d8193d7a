"""LiveRL's repository as its documents lay it out: three trees at their pins."""

from __future__ import annotations

import subprocess
from pathlib import Path

NAMES = ("harbor-verl-train", "harbor", "verl")
MODULES = ("harbor", "verl", "verl_patch", "harbor_patch")


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def pinned_trees(root: Path) -> str:
    """Make a repository of one commit for each of ``NAMES``; returns the lines of config.yaml that pin them."""
    pins = []
    for name in NAMES:
        tree = root / "repos" / name
        tree.mkdir(parents=True)
        git(tree, "init", "-q")
        git(tree, "commit", "-q", "--allow-empty", "-m", "one")
        pins.append(f"    {name}: {{name: {name}, pinned_commit: '{git(tree, 'rev-parse', 'HEAD')[:10]}'}}")
    return "meta_info:\n  repos:\n" + "\n".join(pins) + "\n"
