"""How a process with an environment of its own imports modules of ours: a directory of the run on its PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

from liverl.config.schema import RunConfig
from liverl.plan.spec import FileSpec

PACKAGE = Path(__file__).parents[1]
PATH = "trainer/path"  # in the run directory; on the PYTHONPATH of verl's processes


def stub(folder: str) -> FileSpec:
    """Our package for another environment, in ``folder`` of the run directory: its modules can be imported, but its own
    ``__init__`` is not executed, and nothing else that lies beside it can be imported."""
    return FileSpec(f"{folder}/liverl/__init__.py", f"__path__ = [{str(PACKAGE)!r}]\n")


def python_path(config: RunConfig) -> str:
    """The PYTHONPATH of verl's processes, with a placeholder for the run directory."""
    return ":".join(filter(None, (config.verl.source, f"{{run_dir}}/{PATH}", *config.agent.path)))
