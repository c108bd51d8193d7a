"""LiveRL's sections of config.yaml, with LiveRL's names and keys.

``default.yaml`` holds every default and explains every key with its unit; nothing here has a default of its
own. Keys that are ours and not LiveRL's (``model.tool_parser``, ``training.total_steps``) are marked.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from liverl.config.sections.value_types import (
    Count,
    CountOrZero,
    Frequency,
    Name,
    NotNegative,
    PortOrAny,
    Positive,
    PositiveShare,
    Seconds,
    SecondsOrZero,
    TopK,
)


class Model(Struct, frozen=True, kw_only=True):
    model_path: Name
    served_model_name: Name
    tool_parser: Name  # ours: LiveRL has it in the environment only


class Data(Struct, frozen=True, kw_only=True):
    data_dir: str
    train_index: str
    val_index: str


class Infrastructure(Struct, frozen=True, kw_only=True):
    node0_ip: str
    nnodes: Count
    ngpus_per_node: Count
    ray_port: PortOrAny
    ray_dashboard_port: PortOrAny
    litellm_port: PortOrAny
    vllm_logging_level: Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"]
    anthropic_api_key: str  # never a secret: "", sk-dummy or file:/path; the secret is in Secrets


class Environment(Struct, frozen=True, kw_only=True):
    venv_path: str


class K8s(Struct, frozen=True, kw_only=True):
    kubeconfig: str
    namespace: Name
    pod_startup_timeout: Seconds
    pod_active_deadline_seconds: Seconds


class Vllm(Struct, frozen=True, kw_only=True):
    gen_tp: Count
    max_model_length: Count
    gpu_memory_utilization: PositiveShare
    max_num_seqs: Count
    enforce_eager: bool
    dtype: Name
    enable_chunked_prefill: bool


class Training(Struct, frozen=True, kw_only=True):
    train_batch_size: Count
    val_batch_size: Count
    n_resp_per_prompt: Count
    train_prompt_mini_batch_size: Count
    max_prompt_length: Count
    max_response_length: Count
    sp_size: Count
    use_dynamic_bsz: bool
    ref_offload: bool
    actor_offload: bool
    total_epochs: Count
    total_steps: Count | None  # ours; None = from total_epochs
    save_freq: Frequency
    test_freq: Frequency
    val_before_train: bool


class Algorithm(Struct, frozen=True, kw_only=True):
    adv_estimator: Name
    policy_loss_mode: Name
    learning_rate: NotNegative
    use_kl_loss: bool
    kl_loss_coef: NotNegative
    kl_loss_type: Name
    clip_ratio_low: Positive
    clip_ratio_high: Positive
    entropy_coeff: NotNegative
    loss_agg_mode: Name
    temperature: NotNegative
    top_p: PositiveShare
    top_k: TopK
    val_temperature: NotNegative
    val_top_p: PositiveShare
    val_top_k: TopK


class HarborAgent(Struct, frozen=True, kw_only=True):
    agent_name: str | None
    agent_import_path: str | None
    runtime_image: str | None
    runtime_mount_path: str | None
    runtime_image_subpath: str | None
    max_iterations: Count
    max_timeout_sec: Seconds
    override_timeout_sec: Seconds
    disable_tool_calls: bool
    temperature: NotNegative
    max_retries: CountOrZero
    verifier_enabled: bool
    pod_name_prefix: str
    agent_setup_timeout_multiplier: Positive
    agent_timeout_multiplier: Positive
    verifier_timeout_multiplier: Positive
    environment_build_timeout_multiplier: Positive
    environment_type: str | None
    environment_import_path: str | None
    environment_force_build: bool
    environment_delete: bool
    environment_override_cpus: Count
    environment_override_memory_mb: Count
    max_consecutive_no_tool: CountOrZero
    host_path_mounts: Any  # a list, a text that is a JSON list, or None
    docker_host: str

    @property
    def trial_timeout(self) -> float:
        """Seconds one trial may take: ``override_timeout_sec``, with ``max_timeout_sec`` as its ceiling."""
        return min(self.override_timeout_sec, self.max_timeout_sec)


class HarborRuntime(Struct, frozen=True, kw_only=True):
    num_workers: Count
    tail_kill_target: PositiveShare
    tail_kill_grace_sec: SecondsOrZero
    tail_kill_min_tasks: CountOrZero


class Experiment(Struct, frozen=True, kw_only=True):
    project_name: Name
    exp_name: str
    trials_dir: str
    trajectory_logger_src: str


class Credentials(Struct, frozen=True, kw_only=True):
    wandb_api_key: str  # never a secret: "" or file:/path; the secret is in Secrets
    wandb_mode: Literal["online", "offline", "disabled"]
