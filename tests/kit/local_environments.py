"""Environments of ``environment_type: local``, as Harbor's process makes them, with a double of Harbor's base class.

Simulated: Harbor, which needs an interpreter of its own (tests/stack/test_harbor.py has the real one). Real:
namespaces, mounts, processes, copies.
"""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from liverl.agents.harbor import local_environment_file

NAME = "liverl_local_environment"


class _Result:
    def __init__(self, stdout: str = "", stderr: str = "", return_code: int = 0) -> None:
        self.stdout, self.stderr, self.return_code = stdout, stderr, return_code


class _Base:
    """What Harbor's class does for its heirs."""

    _enable_environment_dir_upload = True

    def __init__(self, trial: Path, session_id: str, files: Path, mounts: Sequence[dict[str, Any]]) -> None:
        self.trial_paths = SimpleNamespace(trial_dir=trial)
        self.session_id, self.environment_dir, self._mounts = session_id, files, list(mounts)
        self.task_env_config = SimpleNamespace(workdir=None)
        self.logger = logging.getLogger(NAME)
        self._validate_definition()

    def _validate_definition(self) -> None:
        raise NotImplementedError

    def _merge_env(self, env: dict[str, str] | None) -> dict[str, str] | None:
        return env


def load() -> ModuleType:
    """The package under the name by which Harbor's process knows it."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    base, capabilities = (
        ModuleType("harbor.environments.base"),
        ModuleType("harbor.environments.capabilities"),
    )
    base.BaseEnvironment, base.ExecResult = _Base, _Result  # type: ignore[attr-defined]
    capabilities.EnvironmentCapabilities = SimpleNamespace  # type: ignore[attr-defined]
    for name, module in {
        "harbor": ModuleType("harbor"),
        "harbor.environments": ModuleType("harbor.environments"),
        "harbor.environments.base": base,
        "harbor.environments.capabilities": capabilities,
    }.items():
        sys.modules.setdefault(name, module)
    spec = importlib.util.spec_from_file_location(NAME, local_environment_file())
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    return package


def refused() -> str:
    """Why this machine has no namespaces for it; "" if it has."""
    try:
        words = ["unshare", "-rmpf", "unshare", "-rm", "true"]
        tried = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return tried.stderr.strip() if tried.returncode else ""
