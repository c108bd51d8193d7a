"""Who uses which key, under which topology, engine and trainer, and why nobody does otherwise.

Every key of the schema stands here exactly once; a unit test holds that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from liverl.config.schema import RunConfig, leaves, value_of

if TYPE_CHECKING:
    from liverl.config.load import LoadedConfig
    from liverl.plan.spec import Inert

When = Callable[[RunConfig], bool]
Why = Callable[[RunConfig], str]


class Rule(Struct, frozen=True):
    """``uses``: package -> when it reads the key from RunConfig. ``why``: what to tell when none does."""

    uses: dict[str, When]
    why: Why


# -- when


def always(c: RunConfig) -> bool:
    return True


def managed(c: RunConfig) -> bool:
    return c.run.topology == "managed"


def embedded_engine(c: RunConfig) -> bool:
    return c.run.engine == "embedded"


def vllm_engine(c: RunConfig) -> bool:
    return c.run.engine == "vllm"


def managed_vllm(c: RunConfig) -> bool:
    return managed(c) and vllm_engine(c)


def embedded_trainer(c: RunConfig) -> bool:
    return c.trainer.kind == "embedded"


def embedded_or_verl(c: RunConfig) -> bool:
    return c.trainer.kind in ("embedded", "verl")


def verl_trainer(c: RunConfig) -> bool:
    return c.trainer.kind == "verl"


def command(c: RunConfig) -> bool:
    return c.trainer.kind == "command"


def harbor(c: RunConfig) -> bool:
    """verl or a launch script: they get LiveRL's variables."""
    return verl_trainer(c) or command(c)


def trains(c: RunConfig) -> bool:
    return c.trainer.kind != "none"


def plans_vllm(c: RunConfig) -> bool:
    """We write vLLM's options, for `vllm serve` or for verl."""
    return managed_vllm(c) or verl_trainer(c)


def serves(c: RunConfig) -> bool:
    """We start the engine and write its options, whichever engine it is."""
    return plans_vllm(c) or embedded_engine(c)


def our_ray(c: RunConfig) -> bool:
    """We start Ray and verl ourselves."""
    return c.run.topology == "verl" and verl_trainer(c)


def our_head(c: RunConfig) -> bool:
    return our_ray(c) and not c.ray.address


def any_ray(c: RunConfig) -> bool:
    """There is a Ray in which we look for replicas, whoever starts it."""
    return our_ray(c) or (c.run.topology == "verl" and command(c))


def foreign_head(c: RunConfig) -> bool:
    return any_ray(c) and (bool(c.ray.address) or command(c))


def cpu_replicas(c: RunConfig) -> bool:
    return our_ray(c) and c.verl.device == "cpu"


def our_proxy(c: RunConfig) -> bool:
    return c.run.topology != "in_process" and not command(c)


def fixed_proxy_port(c: RunConfig) -> bool:
    return c.run.topology != "in_process"


def embedded_any(c: RunConfig) -> bool:
    return embedded_engine(c) or embedded_trainer(c)


# -- why not


def _never(c: RunConfig) -> str:
    return ""


def _sentence(text: str) -> Why:
    return lambda c: text


def _trial_key(embedded: str) -> Why:
    """A key of training: what to say depends on who trains."""

    def why(c: RunConfig) -> str:
        if c.trainer.kind == "none":
            return "trainer.kind is none: nothing trains"
        if c.trainer.kind == "command":
            return "your launch script sets it itself; LiveRL's file only mirrors it"
        return embedded

    return why


def _vllm_key(c: RunConfig) -> str:
    if c.run.engine == "embedded":
        return "the embedded engine is not vLLM"
    return "your launch script sets it itself; LiveRL's file only mirrors it"


def _ray_key(ours: str) -> Why:
    """A key of Ray or verl: what to say depends on who starts them."""

    def why(c: RunConfig) -> str:
        if c.run.topology == "managed":
            return "topology managed starts neither Ray nor verl"
        if command(c):
            return "your launch script starts Ray and verl itself"
        return "topology in_process is observed, not started" if c.run.topology == "in_process" else ours

    return why


def _proxy_key(c: RunConfig) -> str:
    if c.run.topology == "in_process":
        return "the proxy lives inside verl and chooses its own port"
    return "your launch script starts the proxy"


_NO_RAY = _sentence("topology managed starts no Ray")
_NO_PODS = _trial_key("the embedded trials run in local directories, not in pods")
_NO_HARBOR = _trial_key("the embedded trainer runs its own agent and tools, not Harbor's")
_NO_DATA = _trial_key("the embedded trainer has tasks of its own")
_NO_VALIDATION = _trial_key("the embedded trainer runs no validation")
_NO_GPU_TRAINING = _trial_key("the embedded policy is a small table: it has no such setting")
_NO_ALGORITHM = _trial_key("the embedded trainer is GRPO with a clipped token ratio: it has no such setting")
_ENGINE_ONLY = _sentence("a fault of the embedded engine: run.engine is vllm")
_TRAINER_ONLY = _sentence("a fault of the embedded trainer: trainer.kind is not embedded")

_CPU_ONLY = _ray_key("a fault of the replicas of verl.device cpu")

_PLAN, _OBSERVE, _CONFIG = "liverl.plan", "liverl.observe", "liverl.config"


def _group(names: str, uses: dict[str, When], why: Why = _never) -> Iterable[tuple[str, Rule]]:
    """``section: key key`` or ``section: *``; several sections are separated by ``;``."""
    rule = Rule(uses, why)
    for part in names.split(";"):
        section, _, keys = part.partition(":")
        section = section.strip()
        if keys.strip() == "*":
            yield from ((key, rule) for key in leaves() if key.startswith(f"{section}."))
        else:
            yield from ((f"{section}.{key}", rule) for key in keys.split())


_TABLE: tuple[Iterable[tuple[str, Rule]], ...] = (
    _group("run: topology engine; model: *", {_PLAN: always}),
    _group("run: name run_root; experiment: project_name exp_name", {_CONFIG: always}),
    _group("run: seed", {_PLAN: embedded_any}, _sentence("only the embedded run is seeded")),
    _group("run: replicas", {_PLAN: managed}, _sentence("verl decides: the run's GPUs / vllm.gen_tp")),
    _group("data: *", {_PLAN: harbor}, _NO_DATA),
    _group("infrastructure: node0_ip nnodes ray_port ray_dashboard_port", {_PLAN: harbor}, _NO_RAY),
    _group(
        "infrastructure: ngpus_per_node",
        {_PLAN: harbor, _CONFIG: managed_vllm},
        _sentence("the embedded run needs no GPU"),
    ),
    _group("infrastructure: litellm_port", {_PLAN: fixed_proxy_port}, _proxy_key),
    _group("infrastructure: anthropic_api_key", {"liverl.supervise": fixed_proxy_port}, _proxy_key),
    _group("infrastructure: vllm_logging_level", {_PLAN: vllm_engine}, _vllm_key),
    _group(
        "environment: venv_path",
        {_PLAN: lambda c: not managed(c)},
        _sentence("it is verl's environment; topology managed uses environments.proxy and environments.vllm"),
    ),
    (("environments", Rule({_PLAN: always}, _never)),),
    _group("k8s: *", {_PLAN: harbor}, _NO_PODS),
    _group("vllm: max_num_seqs", {_PLAN: serves}, _vllm_key),
    _group("vllm: gen_tp", {_PLAN: plans_vllm, _OBSERVE: command}, _vllm_key),
    _group(
        "vllm: max_model_length gpu_memory_utilization enforce_eager dtype enable_chunked_prefill",
        {_PLAN: plans_vllm},
        _vllm_key,
    ),
    _group(
        "training: train_batch_size n_resp_per_prompt train_prompt_mini_batch_size total_steps save_freq",
        {_PLAN: embedded_or_verl},
        _trial_key(""),
    ),
    _group(
        "training: max_prompt_length max_response_length sp_size use_dynamic_bsz ref_offload actor_offload",
        {_PLAN: verl_trainer},
        _NO_GPU_TRAINING,
    ),
    _group(
        "training: total_epochs",
        {_PLAN: verl_trainer},
        _trial_key("the embedded trainer counts steps: training.total_steps"),
    ),
    _group("training: test_freq", {_PLAN: harbor}, _NO_VALIDATION),
    _group("training: val_batch_size val_before_train", {_PLAN: verl_trainer}, _NO_VALIDATION),
    _group(
        "algorithm: learning_rate clip_ratio_low clip_ratio_high temperature",
        {_PLAN: embedded_or_verl},
        _trial_key(""),
    ),
    _group(
        "algorithm: adv_estimator policy_loss_mode use_kl_loss kl_loss_coef kl_loss_type "
        "entropy_coeff loss_agg_mode top_p top_k",
        {_PLAN: verl_trainer},
        _NO_ALGORITHM,
    ),
    _group("algorithm: val_temperature val_top_p val_top_k", {_PLAN: verl_trainer}, _NO_VALIDATION),
    _group(
        "harbor_agent: max_iterations max_timeout_sec override_timeout_sec; harbor_runtime: num_workers",
        {_PLAN: trains},
        _trial_key(""),
    ),
    _group(
        "harbor_agent: agent_name agent_import_path runtime_image runtime_mount_path runtime_image_subpath "
        "disable_tool_calls temperature max_retries verifier_enabled agent_setup_timeout_multiplier "
        "agent_timeout_multiplier verifier_timeout_multiplier environment_build_timeout_multiplier "
        "max_consecutive_no_tool; harbor_runtime: tail_kill_target tail_kill_grace_sec tail_kill_min_tasks",
        {_PLAN: harbor},
        _NO_HARBOR,
    ),
    _group(
        "harbor_agent: pod_name_prefix environment_type environment_import_path environment_force_build "
        "environment_delete environment_override_cpus environment_override_memory_mb host_path_mounts "
        "docker_host",
        {_PLAN: harbor},
        _NO_PODS,
    ),
    _group("trainer: kind", {_PLAN: always}),
    _group("trainer: restart", {_PLAN: trains}, _trial_key("")),
    _group("trainer: command", {_PLAN: command}, _sentence("only trainer.kind command runs it")),
    _group("trainer: overrides", {_PLAN: verl_trainer}, _sentence("only trainer.kind verl takes overrides")),
    _group("ray: address", {_PLAN: any_ray}, _ray_key("")),
    _group("ray: timeline", {_PLAN: our_ray}, _ray_key("")),
    _group(
        "ray: dashboard_address auth_token_file",
        {_PLAN: foreign_head},
        _ray_key("ray.address is empty: the run starts a Ray of its own"),
    ),
    _group(
        "ray: num_cpus temp_dir object_store_memory",
        {_PLAN: our_head},
        _ray_key("ray.address names a cluster that runs already"),
    ),
    _group(
        "verl: device rollout_mode rollout_gpus agent_loop agent_workers calculate_log_probs "
        "disable_cascade_attn use_torch_compile wandb_proxy",
        {_PLAN: our_ray},
        _ray_key(""),
    ),
    _group("verl: actor_deadline address_deadline health_deadline", {_PLAN: any_ray}, _ray_key("")),
    _group("verl.faults.late_replica: *", {_PLAN: cpu_replicas}, _CPU_ONLY),
    _group(
        "verl.faults: pending_replica mute_replica dead_replica crash_at_step",
        {_PLAN: cpu_replicas},
        _CPU_ONLY,
    ),
    _group("proxy: *", {_PLAN: our_proxy}, _proxy_key),
    _group("supervise: *", {_PLAN: always}),
    _group("observe: *", {_PLAN: always}),
    _group("ui: *", {"liverl_tui": always}),
    _group(
        "embedded: turn_latency",
        {_PLAN: embedded_engine},
        _sentence("a setting of the embedded engine: run.engine is vllm"),
    ),
    _group("embedded.faults.late_replica: *", {_PLAN: embedded_engine}, _ENGINE_ONLY),
    _group(
        "embedded.faults: slow_start leak_worker parsable_every stream_chunk_delay",
        {_PLAN: embedded_engine},
        _ENGINE_ONLY,
    ),
    _group(
        "embedded.faults: crash_at_step hang_at_step tool_executor",
        {_PLAN: embedded_trainer},
        _TRAINER_ONLY,
    ),
    _group("embedded.faults: ignore_sigterm", {_PLAN: embedded_any}, _ENGINE_ONLY),
    _group("experiment: trials_dir", {_PLAN: harbor}, _sentence("trials are in the run directory")),
    _group(
        "experiment: trajectory_logger_src",
        {_PLAN: harbor},
        _sentence("our proxy writes the trajectories itself"),
    ),
    _group("credentials: *", {_PLAN: harbor}, _trial_key("the embedded trainer does not log to wandb")),
)


@functools.cache
def rules() -> dict[str, Rule]:
    """Every key of the schema -> its rule."""
    table: dict[str, Rule] = {}
    for group in _TABLE:
        for key, rule in group:
            if key in table or key not in leaves():
                raise ValueError(f"{key} stands twice in the table of uses, or is no key")
            table[key] = rule
    return table


def consumers(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Every key that is used in this configuration -> the packages that use it."""
    used = {key: tuple(m for m, when in rule.uses.items() if when(config)) for key, rule in rules().items()}
    return {key: modules for key, modules in used.items() if modules}


def why_inert(config: RunConfig, key: str) -> str | None:
    """Why nothing uses ``key`` in this configuration; None if something does."""
    rule = rules()[key]
    return None if any(when(config) for when in rule.uses.values()) else rule.why(config)


def inert_keys(config: RunConfig, loaded: LoadedConfig | None = None) -> tuple[Inert, ...]:
    """The keys that nothing uses in this configuration, why, and where somebody set them."""
    from liverl.plan.spec import Inert  # here: the plan's package imports this one

    origins: Mapping[str, str] = loaded.origins if loaded is not None else {}
    found = []
    for key in rules():
        why = why_inert(config, key)
        if why is not None:
            found.append(Inert(key=key, why=why, value=value_of(config, key), where=_origin(origins, key)))
    return tuple(found)


def _origin(origins: Mapping[str, str], key: str) -> str | None:
    if key in origins:
        return origins[key]
    return next((where for other, where in origins.items() if other.startswith(f"{key}.")), None)
