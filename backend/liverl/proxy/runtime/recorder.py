"""Writes the trajectory files: one JSON object per API call, appended in one write by a separate thread.

A full disk or a slow network file system must not delay the requests of other trials.
"""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .files import append_below
from .trial_folders import steps

FILE = "litellm-trajectory.jsonl"
UNATTRIBUTED = "_unattributed"
REDACTED = "[redacted]"
_REMEMBERED = 4096  # number of trial directories cached
# Conversations and schemas are kept verbatim: a tool may have a parameter called "password".
_VERBATIM = frozenset({"messages", "tools", "choices", "content", "system", "prompt", "functions"})
_SECRET = re.compile(
    r"(api[-_]?key|authorization|auth[-_]?token|access[-_]?token|secret|password|credential|cookie|bearer)$",
    re.IGNORECASE,
)
_BULKY = frozenset({"token_ids", "prompt_token_ids", "logprobs", "prompt_logprobs", "prompt_text"})


def redact(value: Any) -> Any:
    """Return a copy of ``value`` with the values of secret-looking keys replaced, except in conversations."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED
            if isinstance(key, str) and _SECRET.search(key) and item is not None
            else (item if key in _VERBATIM else redact(item))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    return value


def without_tokens(response: Any) -> Any:
    """Return a copy of a response body without token ids and log-probabilities, which the trainer stores."""
    if isinstance(response, Mapping):
        return {key: without_tokens(item) for key, item in response.items() if key not in _BULKY}
    if isinstance(response, list | tuple):
        return [without_tokens(item) for item in response]
    return response


def iso(at: float) -> str:
    """Return Unix seconds as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def encode(record: Mapping[str, Any], secrets: Sequence[str]) -> bytes:
    """Return a record as one line. ``secrets`` are replaced wherever they occur, also if a sandbox printed
    its own key."""
    text = json.dumps(record, ensure_ascii=False, default=str, separators=(",", ":"))
    for secret in secrets:
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], REDACTED)
    return text.encode("utf-8", "replace") + b"\n"


class Recorder:
    """Appends records below ``<run_dir>/trials``. ``error``: why the last one could not be written, or None.
    ``lost``: records that could not be written. ``last_error``: ``error``, kept after later ones were written."""

    def __init__(self, run_dir: Path, secrets: Sequence[str], on_error: Callable[[], None]) -> None:
        self.error: str | None = None
        self.last_error: str | None = None
        self.lost = 0
        self._trials = run_dir / "trials"
        self._secrets = tuple(secrets)
        self._on_error = on_error
        self._folders: OrderedDict[str, Path] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")

    def submit(self, trial: str | None, make: Callable[[], dict[str, Any]]) -> Future[None]:
        """Call ``make()`` and write its result to the file of ``trial``, both in the recorder's thread."""
        return self._thread.submit(self._write, trial, make)

    def close(self) -> None:
        """Return when everything submitted is written."""
        self._thread.shutdown(wait=True)

    def folder(self, trial: str | None) -> Path:
        """Return the trial's directory: in the newest step that has one of this name, else directly below
        ``trials``."""
        if trial is None:
            return self._trials / UNATTRIBUTED
        cached = self._folders.get(trial)
        if cached is not None:
            self._folders.move_to_end(trial)
            return cached
        path = self._trials / trial
        for step in steps(self._trials):
            candidate = self._trials / step / trial
            if candidate.is_dir():
                path = candidate
                break
        self._folders[trial] = path
        if len(self._folders) > _REMEMBERED:
            self._folders.popitem(last=False)
        return path

    def _write(self, trial: str | None, make: Callable[[], dict[str, Any]]) -> None:
        try:
            line = encode(make(), self._secrets)
            try:
                self._append(self.folder(trial) / FILE, line)
            except FileNotFoundError:
                # The cached directory was moved or never created: search again, and create what is missing.
                if trial is not None:
                    self._folders.pop(trial, None)
                folder = self.folder(trial)
                self._append(folder / FILE, line, make=True)
        except Exception as error:  # noqa: BLE001 - a lost record is reported in the status file; requests continue
            reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            told, self.error = self.error, f"cannot write a trajectory record: {reason}"
            self.last_error = self.error
            self.lost += 1
            if self.error != told:
                where = self.folder(trial) / FILE
                print(f"liverl-proxy: {self.error}: {where}", file=sys.stderr, flush=True)
            self._on_error()
        else:
            if self.error is not None:
                self.error = None
                self._on_error()

    def _append(self, path: Path, line: bytes, *, make: bool = False) -> None:
        append_below(self._trials, path, line, make=make)
