"""LiveRL's sections of config.yaml, with LiveRL's names and keys.

``default.yaml`` contains every default and explains every key with its unit; nothing here has a default of its
own. Keys that liverl-tui added (``model.tool_parser``, ``training.total_steps``) are marked.
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
    """``model``: the policy, the name under which it is served, and the parser of its tool calls."""

    model_path: Name
    served_model_name: Name
    tool_parser: Name  # ours: LiveRL reads it from the environment only


class Data(Struct, frozen=True, kw_only=True):
    """``data``: Parquet task indexes; "" = none."""

    data_dir: str
    train_index: str
    val_index: str


class Infrastructure(Struct, frozen=True, kw_only=True):
    """``infrastructure``: hosts, GPUs, ports and the API key of the proxy. A port of 0 means any free one."""

    node0_ip: str
    nnodes: Count
    ngpus_per_node: Count
    ray_port: PortOrAny
    ray_dashboard_port: PortOrAny
    litellm_port: PortOrAny
    vllm_logging_level: Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL"]
    anthropic_api_key: str  # never a secret: "", sk-dummy or file:/path; the secret is in Secrets


class Environment(Struct, frozen=True, kw_only=True):
    """``environment``: an existing Python environment with verl, under LiveRL's key."""

    venv_path: str


class K8s(Struct, frozen=True, kw_only=True):
    """``k8s``: where sandbox pods run, and their time limits in seconds."""

    kubeconfig: str
    namespace: Name
    pod_startup_timeout: Seconds
    pod_active_deadline_seconds: Seconds


class Vllm(Struct, frozen=True, kw_only=True):
    """``vllm``: settings of the vLLM replicas; some also apply to the embedded engine."""

    gen_tp: Count
    max_model_length: Count
    gpu_memory_utilization: PositiveShare
    max_num_seqs: Count
    enforce_eager: bool
    dtype: Name
    enable_chunked_prefill: bool


class Training(Struct, frozen=True, kw_only=True):
    """``training``: batch sizes (in prompts), lengths (in tokens), and how often to save and validate (in steps)."""

    train_batch_size: Count
    val_batch_size: Count
    n_resp_per_prompt: Count
    train_prompt_mini_batch_size: Count
    max_prompt_length: Count
    max_response_length: Count
    sp_size: Count
    engine: Literal["fsdp", "veomni", "megatron"]  # ours, as the next two
    router_replay: Literal["disabled", "R2", "R3"]
    rollout_is: Literal["token", "sequence"] | None
    use_dynamic_bsz: bool
    ref_offload: bool
    actor_offload: bool
    total_epochs: Count
    total_steps: Count | None  # ours; None = determined by total_epochs
    save_freq: Frequency
    keep_checkpoints: Count | None  # ours; None = verl removes none
    test_freq: Frequency
    val_before_train: bool


class Algorithm(Struct, frozen=True, kw_only=True):
    """``algorithm``: the policy update, and sampling in rollouts and (``val_``) validation."""

    adv_estimator: Name
    policy_loss_mode: Name
    learning_rate: NotNegative | None  # None = that of the trainer, see config.learning_rate
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
    """``harbor_agent``: the agent, sandbox and verifier of a trial of Harbor's; turns and timeouts hold for every
    agent."""

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
    host_path_mounts: Any  # a list, a string that contains a JSON list, or None
    docker_host: str

    @property
    def trial_timeout(self) -> float:
        """Seconds that one trial may take: the smaller of ``override_timeout_sec`` and ``max_timeout_sec``."""
        return min(self.override_timeout_sec, self.max_timeout_sec)


class HarborRuntime(Struct, frozen=True, kw_only=True):
    """``harbor_runtime``: how many trials run at a time, and when the last ones of a step are ended."""

    num_workers: Count
    tail_kill_target: PositiveShare
    tail_kill_grace_sec: SecondsOrZero
    tail_kill_min_tasks: CountOrZero


class Experiment(Struct, frozen=True, kw_only=True):
    """``experiment``: names of project and run, and where LiveRL writes trials."""

    project_name: Name
    exp_name: str
    trials_dir: str
    trajectory_logger_src: str


class Credentials(Struct, frozen=True, kw_only=True):
    """``credentials``: the wandb account."""

    wandb_api_key: str  # never a secret: "" or file:/path; the secret is in Secrets
    wandb_mode: Literal["online", "offline", "disabled"]
