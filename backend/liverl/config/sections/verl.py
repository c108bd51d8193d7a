"""The sections of config.yaml for topology verl: its Ray cluster and verl's own settings.

``default.yaml`` contains every default and explains every key with its unit.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from liverl.config.sections.run import LateReplica
from liverl.config.sections.value_types import Count, CountOrZero, Name, NotNegative, Seconds

PROXY_LOOP = "liverl_proxy"  # through LiteLLM
SESSION_LOOP = "liverl_session"  # through a session per trial
OUR_LOOPS = (PROXY_LOOP, SESSION_LOOP)
# ``auto`` is that of ours which goes through what carries the trials; the last two are those of verl 0.9.1.
AGENT_LOOPS = ("auto", *OUR_LOOPS, "single_turn_agent", "tool_agent")


TrainerMode = Literal["sync", "separate_async", "fully_async"]


class Ray(Struct, frozen=True, kw_only=True):
    """``ray``: the address of an existing cluster, or settings of the run's own."""

    address: str
    dashboard_address: str
    auth_token_file: str
    node_deadline: Seconds
    worker_ports: str
    num_cpus: Count | None
    temp_dir: str
    object_store_memory: Count | None
    timeline: bool
    debug: bool


class VerlFaults(Struct, frozen=True, kw_only=True):
    """``verl.faults``: faults injected into a run with ``verl.device`` cpu, for tests. Replicas are named by rank."""

    late_replica: LateReplica
    pending_replica: CountOrZero | None
    mute_replica: CountOrZero | None
    dead_replica: CountOrZero | None
    crash_at_step: Count | None


class FullyAsync(Struct, frozen=True, kw_only=True):
    """``verl.fully_async``: ``async_training`` of verl's ``fully_async_ppo_trainer.yaml``, with ``rollout`` beside
    it."""

    staleness_threshold: NotNegative
    trigger_parameter_sync_step: Count
    require_batches: Count
    partial_rollout: bool
    concurrent_samples_per_replica: Count
    max_concurrent_samples: Count | None
    total_rollout_steps: Count | None


class Verl(Struct, frozen=True, kw_only=True):
    """``verl``: verl's own settings, and the seconds allowed for its replicas to start."""

    device: Literal["cuda", "cpu"]
    source: str
    rollout_mode: Literal["hybrid", "standalone"]
    rollout_gpus: CountOrZero
    trainer_mode: TrainerMode | None
    train_nodes: Count | None
    rollout_nodes: CountOrZero | None
    fully_async: FullyAsync
    agent_loop: Name
    agent_workers: Count
    calculate_log_probs: bool
    disable_cascade_attn: bool
    use_torch_compile: bool
    wandb_proxy: str
    actor_deadline: Seconds
    address_deadline: Seconds
    health_deadline: Seconds
    faults: VerlFaults
