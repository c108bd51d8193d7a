"""Modules that are loaded when they are first used: each worker of a test run imports all test files, and those of
openai and anthropic take it six seconds."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until one of its names is used. What pytest asks each name of a test file (``__class__``,
    ``_mock_name``) is no use, other than for Python's own ``LazyLoader``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazily(name: str) -> ModuleType:
    """The module ``name``, which is loaded at the first use of one of its names.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    if name in sys.modules:
        return sys.modules[name]
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(f"no module {name}")
    return _Later(name)
