"""The paths that a launch script is given: whether they exist. What it chooses itself is not looked at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config.env_vars import VARIABLES
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.script_variables import script_variables
from liverl.plan.spec import Plan
from liverl.preflight import hub
from liverl.preflight.nearby import nearby
from liverl.preflight.subject import main_folder, main_service
from liverl.util import redact

NAME = "what the script starts"
# The variables of LiveRL's that name a file, and those that name a directory.
_FILES = ("TRAIN_INDEX", "VAL_INDEX", "TRAIN_FILES", "VAL_FILES", "K8S_KUBECONFIG", "TRAJECTORY_LOGGER_SRC")
_FOLDERS = ("MODEL_PATH", "DATA_DIR", "VENV_PATH")
_DENIED = "permission denied"
_KUBERNETES = "K8S_KUBECONFIG"
_SANDBOXES = "HARBOR_ENVIRONMENT_IMPORT_PATH"
# Programs that run their command on another host, whose files and GPUs are not those of this one.
_ELSEWHERE = ("sbatch", "srun", "salloc", "qsub", "bsub", "ssh", "kubectl", "sky", "gcloud")


def elsewhere(config: RunConfig) -> bool:
    """Whether the command of the launch script is known to run on another host."""
    command = config.trainer.command or ("",)
    return os.path.basename(command[0]) in _ELSEWHERE


def checks(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """One check for each path that the script gets in a variable, and what is not looked at."""
    script = main_service(plan)
    cwd = main_folder(plan)
    given = {name: script.env[name] for name in (*_FOLDERS, *_FILES) if script.env.get(name)}
    yield _chosen(config, given)
    for name, value in given.items():
        if elsewhere(config):
            yield Check(name, "skipped", f"{value}: the command runs on another host")
        elif name == _KUBERNETES and "docker" in script.env.get(_SANDBOXES, "").lower():
            yield Check(name, "skipped", f"{value}: the sandboxes are Docker's, which need no kubeconfig")
        else:
            yield _path(plan, name, value, cwd)


def _chosen(config: RunConfig, given: Mapping[str, str]) -> Check:
    """That the script itself is not read for what it starts."""
    command = " ".join(redact.command(config.trainer.command or ()))
    looked = ", ".join(("program", "file", "folder", *given))
    words = f"{command} chooses model, data, sizes and environment itself; only {looked} are checked"
    return Check(NAME, "skipped", words)


def _path(plan: Plan, name: str, value: str, cwd: Path) -> Check:
    if "://" in value or value.startswith(("[", "{")) or ("," in value and not os.path.lexists(cwd / value)):
        return Check(name, "skipped", f"{value}: not one path on this host")
    path = cwd / value
    why = _fault(name, path)
    if not why:
        return Check(name, "ok", str(path))
    if name == "MODEL_PATH" and not os.path.lexists(path) and hub.is_id(value):
        return Check(name, "skipped", f"{value}: a model id; the script downloads it if it is not cached")
    fix, near = nearby(str(path)) if not os.path.lexists(path) else ("", None)
    key = dict(VARIABLES).get(name, "")
    variables = script_variables(plan)
    where = variables.given.get(name, ("", ""))[1] if variables is not None else ""
    origin = f" ({name} of the launch script, set by {where})" if where else f" ({name} of the launch script)"
    ways = f"correct {key}" if key else f"correct {name} in trainer.env"
    if why.endswith(_DENIED):
        ways = f"make it readable for this user, or {ways}"
    by_key = bool(key) and not where.startswith("trainer.env")
    patch = {key: near} if near is not None and by_key else {}
    return Check(
        name,
        "fail",
        f"{why}{origin}",
        fix="; ".join(filter(None, (fix, ways))),
        patch=patch,
        guess=bool(patch),
    )


def _fault(name: str, path: Path) -> str:
    """Why the script could not use the path; "" if nothing is known against it."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"{path} does not exist"
    except OSError as error:
        denied = isinstance(error, PermissionError)
        return f"{path} cannot be reached: {_DENIED if denied else os.strerror(error.errno or 0)}"
    if name in _FILES:
        if not stat.S_ISREG(mode):
            return f"{path} is a directory" if stat.S_ISDIR(mode) else f"{path} is no regular file"
        return "" if os.access(path, os.R_OK) else f"{path} cannot be read: {_DENIED}"
    if not stat.S_ISDIR(mode):
        return f"{path} is not a directory"
    if not os.access(path, os.R_OK | os.X_OK):
        return f"{path} cannot be entered: {_DENIED}"
    if name == "VENV_PATH" and not os.access(path / "bin" / "python", os.X_OK):
        return f"{path} is no Python environment: it has no bin/python"
    if name == "MODEL_PATH" and not os.listdir(path):
        return f"{path} is empty"
    return ""
