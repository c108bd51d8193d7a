"""The secrets of a run: the proxy's two API keys (the master key for the backend, the run key for sandboxes), the
trainer's key to the sessions, and the tokens of Ray's and the replicas' ports."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from liverl.util.atomic_file import write_atomic
from liverl.util.checked_path import open_folder
from liverl.util.modes import make_directory
from liverl.util.regular_file import open_regular, read_text

FOLDER = "secrets"
LONGEST = 4096  # bytes of a key's file
_FORM = re.compile(r"[A-Za-z0-9_.~+/=-]{8,256}")


class InvalidKey(Exception):
    """A key cannot be used; the message says why, without the key."""


@dataclass(frozen=True)
class Keys:
    """The keys of a run. ``repr`` hides them, as it ends up in logs."""

    master: str
    run: str

    def __repr__(self) -> str:
        return "Keys(...)"


def ensure_keys(run_dir: Path | str, configured_run_key: str | None = None) -> Keys:
    """Create (or read) ``<run_dir>/secrets/{master_key,run_key}`` and return the keys.

    The directory has mode 0700, the files 0600. Both keys are the same in all attempts of a run; a
    ``configured_run_key`` replaces the run key.

    Raises:
        InvalidKey: the configured key cannot be sent in a header, or is too short to be redacted
            reliably.
        OSError: the directory cannot be written, or a key's file cannot be read.
    """
    folder = Path(run_dir) / FOLDER
    _private(folder)
    if configured_run_key is not None and not _FORM.fullmatch(configured_run_key):
        raise InvalidKey("the configured key must have 8 to 256 characters from A-Z a-z 0-9 _ . ~ + / = -")
    master = _ensure(folder / "master_key", None)
    run = _ensure(folder / "run_key", configured_run_key)
    if master == run:
        raise InvalidKey(
            "the configured key is the run's master key; sandboxes would have full access to the proxy"
        )
    return Keys(master, run)


def ensure_ray_token(run_dir: Path | str) -> Path:
    """Create (or find) ``<run_dir>/secrets/ray_token``, with which processes of the run join its Ray cluster.

    The same in all attempts.

    Raises:
        OSError: the directory cannot be written.
    """
    return _ensure_token(run_dir, "ray_token")


def ensure_replica_token(run_dir: Path | str) -> Path:
    """Create (or find) ``<run_dir>/secrets/replica_token``, which the replicas of the run require on every port.

    The same in all attempts.

    Raises:
        OSError: the directory cannot be written.
    """
    return _ensure_token(run_dir, "replica_token")


def ensure_sessions_key(run_dir: Path | str) -> Path:
    """Create (or find) ``<run_dir>/secrets/sessions_key``, with which the trainer opens and ends sessions. No agent
    gets it.

    The same in all attempts.

    Raises:
        OSError: the directory cannot be written.
    """
    return _ensure_token(run_dir, "sessions_key")


def ensure_metrics_token(run_dir: Path | str) -> Path:
    """Create (or find) ``<run_dir>/secrets/metrics_token``, with which Prometheus reads the run's metrics.

    The same in all attempts.

    Raises:
        OSError: the directory cannot be written.
    """
    return _ensure_token(run_dir, "metrics_token")


def _ensure_token(run_dir: Path | str, name: str) -> Path:
    folder = Path(run_dir) / FOLDER
    _private(folder)
    _ensure(folder / name, None)
    return folder / name


def _private(folder: Path) -> None:
    make_directory(folder, 0o700)
    fd = open_folder(folder)
    try:
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def _ensure(path: Path, wanted: str | None) -> str:
    try:
        present = read_text(path, LONGEST).strip()
    except FileNotFoundError:
        present = ""
    if present and wanted in (None, present):
        fd = open_regular(path)
        try:
            os.fchmod(fd, 0o600)
        finally:
            os.close(fd)
        return present
    value = wanted or f"sk-liverl-{secrets.token_urlsafe(24)}"
    write_atomic(path, f"{value}\n".encode("ascii"), 0o600)
    return value
