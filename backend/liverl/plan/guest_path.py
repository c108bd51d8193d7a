"""How a process with an environment of its own imports modules of ours: a directory of the run on its PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

from liverl.plan.spec import FileSpec

_PACKAGE = Path(__file__).parents[1]


def stub(folder: str) -> FileSpec:
    """Our package for another environment, in ``folder`` of the run directory: its modules can be imported, but its own
    ``__init__`` is not executed, and nothing else that lies beside it can be imported."""
    return FileSpec(f"{folder}/liverl/__init__.py", f"__path__ = [{str(_PACKAGE)!r}]\n")
