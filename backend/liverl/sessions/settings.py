"""Settings of the service: a flat JSON file written by the run's plan."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from liverl.sessions.admission import Rules
from liverl.sessions.segments import Asides, Rewrite
from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

SOCKET = "sessions/control.sock"  # of the trainer's part, in the run directory


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rules``: which requests wait; ``poll``: seconds for which a reading of a KV cache holds."""

    rules: Rules
    poll: float


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Paths are absolute, times seconds. ``host``: by which agents reach the service ("": the address that it listens
    on, this machine's primary one if those are all); ``request_timeout``: of one request to a replica; ``scheduler``:
    None where no request waits for a KV cache; ``asides``, ``models``, ``patience``, ``max_replica_deaths``,
    ``in_flight``, ``rows_per_trial``, ``tokenizer``, ``processes``: see the keys of ``session_proxy``; ``model_path``:
    the folder of the model, for replicas that do not say theirs; ``decides``: ``client`` in a run without a trainer,
    where all sessions are sampled as their clients ask."""

    run_dir: str
    host: str
    control_key_file: str
    replica_token_file: str
    max_body_bytes: int
    rewrite: Rewrite
    main_agent_prefix_match: int
    request_timeout: float
    scheduler: SchedulerSettings | None = None
    asides: Asides = "skip"
    models: tuple[str, ...] = ()
    patience: float = 120.0
    max_replica_deaths: int = 2
    in_flight: int = 16
    rows_per_trial: int = 64
    decides: Literal["trainer", "client"] = "trainer"
    tokenizer: Literal["auto", "engine"] = "engine"
    model_path: str = ""
    processes: int | Literal["auto"] = 1

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
        return decode_json(read_regular(path), type=Settings)
    except BAD_JSON as error:
        raise ValueError(f"{path}: {error}") from error
