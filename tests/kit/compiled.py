"""What a fresh checkout has not made yet is made once, and not by each worker for itself.

All workers import the same files in the same order: each would find none of them compiled, and compile them all. Each
compiles a share first instead. So it is with the numbers and texts that stand in our modules, which Hypothesis tries as
examples: it reads them from each module, and keeps them in a folder."""

from __future__ import annotations

import importlib.util
import itertools
import py_compile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key
from hypothesis.internal.constants_ast import constants_from_module

ROOT = Path(__file__).parents[2]
PRODUCT = ("backend", "liverl_tui")


def compile_share(
    config: pytest.Config, number: int, of: int, is_wanted: Callable[[Path], bool], *, backwards: bool
) -> None:
    """Compile each ``of``-th file of ours, from the ``number``-th on (0 is the first), unless it is: all modules, and
    the files of tests that ``is_wanted``. Another run of the tests may do the same at this time: ``backwards`` begins
    at the end, so that they meet in the middle."""

    def share(paths: list[Path]) -> itertools.islice[Path]:
        return itertools.islice(sorted(paths, reverse=backwards), number, None, of)

    for path in share([path for path in (ROOT / "tests").rglob("test_*.py") if is_wanted(path)]):
        _rewrite(config, path)
    for path in share([path for folder in (*PRODUCT, "tests/kit") for path in (ROOT / folder).rglob("*.py")]):
        if not Path(importlib.util.cache_from_source(path)).exists():
            py_compile.compile(str(path), doraise=False, quiet=2)
    for path in share([path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]):
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        constants_from_module(module)


def _rewrite(config: pytest.Config, path: Path) -> None:
    """As pytest does when it imports a file of tests: their assertions say what was compared."""
    folder = rewrite.get_cache_dir(path)
    compiled = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, compiled) is not None or not rewrite.try_makedirs(folder):
        return
    stat, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(config.stash[assertstate_key], code, stat, compiled)
