"""Settings of the embedded trainer: a flat JSON file written by the run's plan."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from liverl.util.bad_json import BAD_JSON
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular


class TrainerFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults that the trainer injects into itself, for tests of supervision. A step of 0 means never."""

    start_delay: float = 0.0  # seconds before the trainer starts
    crash_at_step: int = 0  # after the rollout of this step, before its update
    crash_how: Literal["raise", "exit", "kill"] = "raise"  # traceback + 1, os._exit(3), SIGKILL to itself
    hang_at_step: int = 0  # hangs forever after the rollout of this step
    nan_at_step: int = 0  # the advantages are NaN from this step on, and with them loss and gradient
    ignore_sigterm: bool = False
    leak_worker: bool = False  # leaves a process in its own session that ignores SIGTERM
    # Seconds that these take longer: each tool call, each sandbox, the last trial of each step, each update.
    slow_tool: float = 0.0
    slow_sandbox: float = 0.0
    slow_last: float = 0.0
    slow_update: float = 0.0


class TrainerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings. Batch sizes count prompts, each with ``n_resp_per_prompt`` trials. Times are seconds."""

    run_dir: str
    attempt_dir: str
    served_model: str
    # The trials go through one of both: LiteLLM (http://host:port, with or without /v1), or sessions (the file with
    # the key of their trainer's part).
    proxy_url: str | None = None
    sessions_key_file: str | None = None
    run_key_file: str | None = None  # file with the bearer token; None = no Authorization header
    replica_token_file: str | None = None  # file with the token of the replicas' ports; None = they need none
    checkpoint_dir: str | None = None  # None = <run_dir>/checkpoints
    resume: bool = False  # continue from the newest complete checkpoint, if any
    total_steps: int = 20
    save_freq: int = 5  # steps between checkpoints; 0 = only at the end
    train_batch_size: int = 4
    n_resp_per_prompt: int = 8
    mini_batch_size: int = 2
    learning_rate: float = 0.3  # for Adam on logits, not transformer weights: 0.3 learns in 20 steps
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.28
    temperature: float = 1.0
    seed: int = 0
    max_iterations: int = 8  # maximum turns of a trial
    max_tokens: int = 256  # maximum tokens of one turn
    trial_timeout: float = 2400.0
    num_workers: int = 16  # concurrent trials
    tool_executor: Literal["full", "empty"] = "full"
    sync_timeout: float = 15.0  # how long an update waits for a listed replica that does not respond
    faults: TrainerFaults = TrainerFaults()

    def __post_init__(self) -> None:
        if (self.proxy_url is None) == (self.sessions_key_file is None):
            raise ValueError("exactly one of proxy_url and sessions_key_file must be given")
        for name in ("total_steps", "train_batch_size", "n_resp_per_prompt", "mini_batch_size",
                     "max_iterations", "max_tokens", "num_workers"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("trial_timeout", "temperature", "sync_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")
        for name in ("save_freq", "learning_rate", "clip_ratio_low", "clip_ratio_high"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative: {getattr(self, name)}")

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return Path(self.checkpoint_dir) if self.checkpoint_dir else Path(self.run_dir) / "checkpoints"


def chat_url(proxy_url: str) -> str:
    """Return the chat completions URL of ``proxy_url``: http://host:port, with or without /v1."""
    return proxy_url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"


def read_settings(path: Path) -> TrainerConfig:
    """Read the settings.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not valid; the message starts with the path.
    """
    try:
        return decode_json(read_regular(path), type=TrainerConfig)
    except BAD_JSON as error:
        raise ValueError(f"{path}: {error}") from error
