"""The secrets of a run. They are kept out of RunConfig, of every saved file and of every printed form."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from liverl.config.env_vars import SECRET_KEYS
from liverl.config.errors import Problem, Where
from liverl.config.layers import Setting
from liverl.config.schema import Path as KeyPath
from liverl.util.regular_file import open_binary

PLACEHOLDER = "sk-dummy"  # LiveRL's placeholder; it is not a secret
FILE_SCHEME = "file:"
_MAX_BYTES = 64 * 1024
# key -> allowed form, and that form for the user. The API key of the run is sent in headers, followed by ".<trial>".
_FORMS = {
    "credentials.wandb_api_key": (re.compile(r"[!-~]+"), "printable ASCII without spaces"),
    "infrastructure.anthropic_api_key": (
        re.compile(r"[A-Za-z0-9_.~+/=-]{8,256}"),
        "8 to 256 characters from A-Z a-z 0-9 _ . ~ + / = -",
    ),
}
_ADVICE = {
    "credentials.wandb_api_key": "set WANDB_API_KEY or WANDB_API_KEY_FILE",
    "infrastructure.anthropic_api_key": "leave it empty (each run generates its own) or set ANTHROPIC_API_KEY_FILE",
}


class Secrets:
    """The secrets of a run, as attributes; "" = not set. ``repr`` hides them, and pickling raises TypeError."""

    __slots__ = ("anthropic_api_key", "wandb_api_key")

    def __init__(self, *, wandb_api_key: str = "", anthropic_api_key: str = "") -> None:
        self.wandb_api_key = wandb_api_key
        self.anthropic_api_key = anthropic_api_key

    def __repr__(self) -> str:
        states = (f"{name}={'set' if getattr(self, name) else 'not set'}" for name in self.__slots__)
        return f"Secrets({', '.join(states)})"

    def __reduce__(self) -> str:
        raise TypeError("secrets are not serialised")


def is_reference(value: str) -> bool:
    """Whether the value of a secret's key may be saved: it is empty, LiveRL's placeholder, or ``file:`` with a path."""
    return value in ("", PLACEHOLDER) or value.startswith(FILE_SCHEME)


def take_secrets(
    settings: dict[KeyPath, Setting], env: Mapping[str, str], read_files: bool
) -> tuple[Secrets, list[Problem], list[str]]:
    """Move the secrets out of ``settings``: literal ones, and with ``read_files`` those in files named by ``file:``.

    Returns the secrets, the problems with them, and warnings.
    """
    secrets: dict[str, str] = {}
    problems: list[Problem] = []
    warnings: list[str] = []
    for key in SECRET_KEYS:
        path = tuple(key.split("."))
        setting = settings[path]
        value: str = setting.value
        secret = ""
        if value.startswith(FILE_SCHEME):
            result = _read(value.removeprefix(FILE_SCHEME), env, key, setting.where) if read_files else ""
            if isinstance(result, Problem):
                problems.append(result)
            else:
                secret = result
        elif not is_reference(value):
            secret = value
            settings[path] = Setting("", setting.where, setting.layer)
            if setting.layer == "file":
                warnings.append(
                    f"{setting.where}: {key} contains a secret in plain text, which is not saved; {_ADVICE[key]}"
                )
            elif setting.layer == "set":
                warnings.append(
                    f"--set {key}: other users can read the secret in the process list; {_ADVICE[key]}"
                )
            # Processes get this key from a variable of its name or from a file, and in no other way.
            if key == "credentials.wandb_api_key" and setting.layer in ("file", "env", "set"):
                warnings.append(
                    f"{setting.where}: {key} has no effect, because no process receives a key set here; {_ADVICE[key]}"
                )
        form, words = _FORMS[key]
        if secret and not form.fullmatch(secret):
            hidden = "a value (not shown)"
            problems.append(Problem(setting.where, key, "invalid key", hidden, words))
        secrets[key.rsplit(".", 1)[-1]] = secret
    return Secrets(**secrets), problems, warnings


def _read(name: str, env: Mapping[str, str], key: str, where: Where) -> str | Problem:
    if name.startswith("~/") and env.get("HOME"):
        name = env["HOME"] + name[1:]
    path = Path(name)
    if not path.is_absolute():
        return Problem(
            where,
            key,
            "the secret's file must have an absolute path",
            f"'{name}'",
            "file:/path or file:~/path",
        )
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return Problem(where, key, f"{name} is not a file")
        if status.st_mode & 0o077:
            mode = f"mode {stat.S_IMODE(status.st_mode):04o}"
            return Problem(
                where, key, f"other users can read {name}", mode, "mode 0600", f"run: chmod 600 {name}"
            )
        with open_binary(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        return Problem(where, key, f"cannot read {name}: {getattr(error, 'strerror', None) or error}")
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(data) > _MAX_BYTES:
        return Problem(where, key, f"{name} does not contain a key", allowed="one line of printable ASCII")
    return text
