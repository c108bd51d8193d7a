"""Starts LiteLLM on an inherited listening socket: ``python runner.py`` in LiteLLM's environment.

The directory is loaded as ``liverl_runtime`` and removed from ``sys.path``, so that its modules cannot shadow
LiteLLM's and packages next to it are not visible to LiteLLM.

Environment: ``LIVERL_RUN_DIR``, ``LIVERL_PROXY_CONFIG``, ``LIVERL_LISTEN_FD``, ``LIVERL_GENERATION``,
``LIVERL_DRAIN_TIMEOUT`` (seconds), ``LIVERL_SAMPLING`` (a file with the trainer's sampling parameters, see
``sampling.py``; without it clients decide them). Signals: HUP = reload the model list, USR1 = drain, TERM = exit.
Exit codes: 0 stopped as requested, 2 invalid settings, 3 LiteLLM did not start, 4 the drain timeout interrupted
requests.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "liverl_runtime"
# Modules of ``liverl.util`` that this environment gets, too, in the order in which they import each other: the one
# table of what every HTTP server of ours accepts.
SHARED = ("descriptors", "http_limits", "json_limits", "log_path")


def load_package(folder: Path) -> ModuleType:
    """Make ``folder`` importable as ``liverl_runtime`` without adding it to ``sys.path``."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {folder} as {PACKAGE}")
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return package


def load_shared(folder: Path) -> None:
    """Make the modules ``SHARED`` importable from ``folder``, and nothing else of ``liverl``."""
    for name in ("liverl", "liverl.util"):
        parent = sys.modules[name] = ModuleType(name)
        parent.__path__ = []
    for name in SHARED:
        spec = importlib.util.spec_from_file_location(f"liverl.util.{name}", folder / f"{name}.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {folder / name}.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def main() -> int:
    """Run the proxy; returns the exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 - LiteLLM's environment may be the user's own
        print(
            f"liverl-proxy: Python 3.11 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr
        )
        return 2
    os.umask(os.umask(0o077) | 0o022)  # trials are not writable by other users, whatever the caller's umask
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    load_shared(folder.parents[1] / "util")
    load_package(folder)
    server = importlib.import_module(f"{PACKAGE}.server")
    return int(server.main())


if __name__ == "__main__":
    code = main()
    # All records are on disk. A regular interpreter shutdown would take 2 s for LiteLLM's thousands of modules.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
