"""Settings of a replica as plain values, so that its process need not import verl to read them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import read_text
from liverl.util.token_guard import Token

FAULTS_VARIABLE = "LIVERL_CPU_FAULTS"
TOKEN_FILE_VARIABLE = "LIVERL_REPLICA_TOKEN_FILE"  # path of the file with the token that replicas require


@dataclass(frozen=True)
class Settings:
    """Settings of one replica. Lengths are tokens."""

    rank: int
    model: str  # directory
    served: tuple[str, ...]
    tool_parser: str
    max_model_len: int
    max_num_seqs: int
    prompt_length: int
    response_length: int
    seed: int
    hybrid: bool  # shares its device with the trainer: sleeps, and starts without weights
    free_cache_engine: bool
    load_weights: bool  # False: random weights until the trainer's arrive (vLLM's load format "dummy")
    # Require the run's token; not for reward and teacher models, which verl calls without it
    guarded: bool = False
    listen_delay: float = 0.0  # faults from here on; seconds before it listens
    mute: bool = False  # never listens
    dead: bool = False  # exits during its launch


@dataclass(frozen=True)
class Faults:
    """Faults to inject, for tests; a rank or step of None means no fault."""

    late_rank: int | None = None
    late_seconds: float = 0.0
    pending_rank: int | None = None
    mute_rank: int | None = None
    dead_rank: int | None = None
    crash_at_step: int | None = None


def faults(text: str | None = None) -> Faults:
    """Parse the faults in ``text``, by default from the environment.

    Raises:
        ValueError: it is not a valid mapping of faults.
    """
    text = os.environ.get(FAULTS_VARIABLE, "") if text is None else text
    if not text:
        return Faults()
    given = decode_loose_json(text)
    if not isinstance(given, dict):
        raise ValueError(f"{FAULTS_VARIABLE} must be a JSON object")
    late = given.get("late_replica") or {}
    seconds = float(late.get("seconds") or 0.0)
    return Faults(
        late_rank=late.get("index") if seconds > 0 else None,
        late_seconds=seconds,
        pending_rank=given.get("pending_replica"),
        mute_rank=given.get("mute_replica"),
        dead_rank=given.get("dead_replica"),
        crash_at_step=given.get("crash_at_step"),
    )


def required_token(settings: Settings) -> Token | None:
    """The token that the replica requires of every client; None = none, as under a plan of an older version.

    Raises:
        OSError: the file of the token cannot be read; the replica must then not listen.
        ValueError: it is empty.
    """
    file = os.environ.get(TOKEN_FILE_VARIABLE, "")
    return Token(read_text(file).strip()) if settings.guarded and file else None
