"""What a fresh checkout has not compiled yet is compiled once, and not by each worker for itself.

All workers import the same files in the same order: each would find none of them compiled, and compile them all. Each
compiles a share first instead."""

from __future__ import annotations

import importlib.util
import py_compile
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key

ROOT = Path(__file__).parents[2]


def compile_share(config: pytest.Config, number: int, of: int) -> None:
    """Compile each ``of``-th file of ours, from the ``number``-th on (0 is the first), unless it is."""
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.parent.name != "bench"]
    modules = [
        path for folder in ("backend", "liverl_tui", "tests/kit") for path in (ROOT / folder).rglob("*.py")
    ]
    for path in sorted(tests)[number::of]:
        _rewrite(config, path)
    for path in sorted(modules)[number::of]:
        if not Path(importlib.util.cache_from_source(path)).exists():
            py_compile.compile(str(path), doraise=False, quiet=2)


def _rewrite(config: pytest.Config, path: Path) -> None:
    """As pytest does when it imports a file of tests: their assertions say what was compared."""
    folder = rewrite.get_cache_dir(path)
    compiled = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is not None or not rewrite.try_makedirs(folder):
        return
    stat, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(config.stash[assertstate_key], code, stat, compiled)
