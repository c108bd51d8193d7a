"""Settings of the service: a flat JSON file written by the run's plan."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liverl.sessions.admission import Rules
from liverl.sessions.segments import Rewrite
from liverl.util.regular_file import read_regular

SOCKET = "sessions/control.sock"  # of the trainer's part, in the run directory


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rules``: which requests wait; ``poll``: seconds for which a reading of a KV cache holds."""

    rules: Rules
    poll: float


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths are absolute, times seconds. ``host``: by which agents reach the service ("": this
    machine's primary address); ``request_timeout``: of one
    request to a replica; ``scheduler``: None where no request waits for a KV cache."""

    run_dir: str
    host: str
    control_key_file: str
    replica_token_file: str
    max_body_bytes: int
    rewrite: Rewrite
    main_agent_prefix_match: int
    request_timeout: float
    scheduler: SchedulerSettings | None = None

    @property
    def folder(self) -> Path:
        """Where the journals, the list of replicas, the reports and the socket of the trainer's part are."""
        return Path(self.run_dir) / "sessions"


def read_settings(path: Path) -> Settings:
    """Read the settings.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not valid; the message starts with the path.
    """
    try:
        return msgspec.json.decode(read_regular(path), type=Settings)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from error
