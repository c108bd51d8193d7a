"""Which package uses which key, under which topology, engine and trainer, and why a key is inert otherwise.

A key is used if its value changes what a component gets: an argument, a file, a setting of the backend, or an
environment variable that the component reads. A variable that nothing reads does not count. A key that the plan always
uses needs no entry; every other key is listed here exactly once, or belongs to its section's ``*``: the keys that no
other entry names. A unit test compares the table with the plans.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct

from liverl.config import conditions as when
from liverl.config import inert
from liverl.config.inert import Why
from liverl.config.loaded import LoadedConfig
from liverl.config.schema import RunConfig, leaves, value_of
from liverl.config.sections.verl import PROXY_LOOP, SESSION_LOOP
from liverl.model import Inert

_Entry = TypeVar("_Entry")
When = Callable[[RunConfig], bool]


class KeyRule(Struct, frozen=True):
    """``uses``: package -> the condition under which it reads the key from RunConfig. ``why``: the reason to show when
    no package does."""

    uses: dict[str, When]
    why: Why


_PLAN, _CONFIG, _OBSERVE = "liverl.plan", "liverl.config", "liverl.observe"
_ALWAYS = KeyRule({_PLAN: when.always}, inert.never)


def _group(names: str, uses: dict[str, When], why: Why = inert.never) -> Iterable[tuple[str, KeyRule]]:
    """One rule for several keys. ``names``: ``section: key key``; sections are separated by ``;``, and ``*`` stands
    for the keys of the section that no other group names."""
    rule = KeyRule(uses, why)
    for part in names.split(";"):
        section, _, keys = part.partition(":")
        yield from ((f"{section.strip()}.{key}", rule) for key in keys.split())


def _engine_group(
    names: str, why: Why, otherwise: When = when.never, given: When = when.always, but: str = ""
) -> Iterable[tuple[str, KeyRule]]:
    """Keys that are used if the replicas' engine lists them and ``given`` holds, or if ``otherwise`` holds.
    ``section: *`` stands for the section's own keys except those in ``but``."""
    section, _, keys = names.partition(": ")
    if keys == "*":
        own = (key.rpartition(".") for key in leaves())
        keys = " ".join(name for home, _, name in own if home == section and name not in but.split())
    for key, _ in _group(f"{section}: {keys}", {}):

        def used(c: RunConfig, key: str = key) -> bool:
            return (when.engine_reads(c, key) and given(c)) or otherwise(c)

        yield key, KeyRule({_PLAN: used}, why)


def _or_variables(condition: When) -> When:
    """The condition, or that code outside of liverl and verl gets LiveRL's variables."""
    return lambda c: condition(c) or when.reads_variables(c)


_TABLE: tuple[Iterable[tuple[str, KeyRule]], ...] = (
    _group("run: name run_root; experiment: project_name exp_name", {_CONFIG: when.always}),
    _engine_group("run: seed", inert.sentence("only the embedded run uses a seed"), when.embedded_trainer),
    _group(
        "run: replicas",
        {_PLAN: when.managed},
        inert.sentence("verl sets the number of replicas: the run's GPUs / vllm.gen_tp"),
    ),
    _group("data: data_dir", {_PLAN: when.reads_variables}, inert.NO_DATA),
    _group("data: train_index val_index", {_PLAN: when.verl_or_command}, inert.NO_DATA),
    _group("infrastructure: node0_ip", {_PLAN: when.node0_ip}, inert.no_ray()),
    _group("infrastructure: nnodes", {_PLAN: when.verl_or_command}, inert.no_ray()),
    _group("infrastructure: litellm_port", {_PLAN: when.litellm_port}, inert.no_proxy),
    _group("infrastructure: ray_port", {_PLAN: when.ray_port}, inert.no_ray(inert.RAY_RUNS)),
    _group(
        "infrastructure: ray_dashboard_port",
        {_PLAN: when.ray_dashboard_port},
        inert.no_ray("ray.dashboard_address names the dashboard of an existing cluster"),
    ),
    _group(
        "infrastructure: ngpus_per_node",
        {_PLAN: when.verl_or_command, _CONFIG: when.needs_gpus},
        inert.sentence("the embedded run uses no GPU"),
    ),
    _group("infrastructure: anthropic_api_key", {"liverl.supervise": when.run_key}, inert.no_proxy),
    _engine_group("infrastructure: vllm_logging_level", inert.vllm_key, when.vllm_in_verl),
    _group("environment: venv_path", {_PLAN: when.verl_venv}, inert.venv_key),
    _group("k8s: kubeconfig namespace", {_PLAN: _or_variables(when.harbor_cluster)}, inert.cluster_key),
    _group("k8s: *", {_PLAN: _or_variables(when.harbor_class)}, inert.pod_key),
    _engine_group("vllm: gen_tp", inert.vllm_key, when.verl_or_command),
    _engine_group("vllm: *", inert.vllm_key, when.verl_trainer, but="gen_tp"),
    _group(
        "training: n_resp_per_prompt train_prompt_mini_batch_size total_steps save_freq",
        {_PLAN: when.embedded_or_verl},
        inert.trial_key(""),
    ),
    _group(
        "training: train_batch_size",
        {_PLAN: when.batch_size},
        inert.trial_key(
            "", "in verl.trainer_mode fully_async a step is a version of the parameters: see verl.fully_async"
        ),
    ),
    _group(
        "training: *",
        {_PLAN: when.verl_trainer},
        inert.NO_GPU_TRAINING,
    ),
    _group(
        "training: total_epochs",
        {_PLAN: when.verl_trainer},
        inert.trial_key("the embedded trainer uses training.total_steps"),
    ),
    _group("training: test_freq", {_PLAN: when.verl_or_command}, inert.NO_VALIDATION),
    _group("training: val_batch_size val_before_train", {_PLAN: when.verl_trainer}, inert.NO_VALIDATION),
    _group(
        "algorithm: learning_rate clip_ratio_low clip_ratio_high",
        {_PLAN: when.embedded_or_verl},
        inert.trial_key(""),
    ),
    # What a launch script's agents ask for is compared with them.
    _group(
        "algorithm: temperature", {_PLAN: when.embedded_or_verl, _OBSERVE: when.command}, inert.trial_key("")
    ),
    _group("algorithm: top_p", {_PLAN: when.verl_trainer, _OBSERVE: when.command}, inert.NO_ALGORITHM),
    _group(
        "algorithm: val_temperature val_top_p",
        {_PLAN: when.verl_trainer, _OBSERVE: when.command},
        inert.NO_VALIDATION,
    ),
    _group(
        "algorithm: *",
        {_PLAN: when.verl_trainer},
        inert.NO_ALGORITHM,
    ),
    _group("algorithm: val_top_k", {_PLAN: when.verl_trainer}, inert.NO_VALIDATION),
    _group("harbor_agent: max_iterations", {_PLAN: when.trains}, inert.trial_key("")),
    _group(
        "harbor_agent: max_timeout_sec override_timeout_sec",
        {_PLAN: when.limits_trials},
        inert.trial_key(
            "", f"only the agent loops {SESSION_LOOP} and {PROXY_LOOP} stop a trial that exceeds its timeout"
        ),
    ),
    _group(
        "harbor_runtime: num_workers",
        {_PLAN: lambda c: when.harbor(c) or when.embedded_or_reads_variables(c)},
        inert.harbor_key,
    ),
    _group("harbor_agent: *; harbor_runtime: *", {_PLAN: _or_variables(when.harbor)}, inert.harbor_key),
    _group("harbor_agent: max_retries", {_PLAN: _or_variables(when.our_loop)}, inert.agent_key),
    _group("harbor_agent: temperature", {_PLAN: when.reads_variables}, inert.temperature_key),
    _group(
        "harbor_agent: runtime_mount_path runtime_image_subpath",
        {_PLAN: _or_variables(when.harbor_image)},
        inert.image_key,
    ),
    _group("harbor_agent: pod_name_prefix", {_PLAN: _or_variables(when.harbor_class)}, inert.pod_key),
    _group(
        "harbor_agent: environment_override_cpus environment_override_memory_mb",
        {_PLAN: _or_variables(when.harbor_limits)},
        inert.limits_key,
    ),
    _group("harbor_agent: docker_host", {_PLAN: _or_variables(when.harbor_docker)}, inert.docker_key),
    _group("sandboxes: labels", {_PLAN: when.compose_sandboxes}, inert.docker_key),
    _group("sandboxes: sweep", {_PLAN: when.sweepable_sandboxes}, inert.sweep_key),
    _group("sandboxes: stop_timeout", {_PLAN: when.swept_sandboxes}, inert.sweep_key),
    _group("trainer: restart", {_PLAN: when.embedded_or_verl}, inert.restart_key),
    _group(
        "trainer: command cwd env logs",
        {_PLAN: when.command},
        inert.sentence("only trainer.kind command starts a command of yours"),
    ),
    _group(
        "trainer: overrides",
        {_PLAN: lambda c: when.verl_trainer(c) or when.counts_replicas(c)},
        inert.sentence("only trainer.kind verl takes overrides"),
    ),
    _group("agent: kind python command; agent.endings: *", {_PLAN: when.our_loop}, inert.agent_key),
    _group("agent: verifier env", {_PLAN: when.runs_programs}, inert.agent_key),
    _group("agent: tools functions path; reward: function", {_PLAN: when.verl_trainer}, inert.verl_key),
    _group(
        "reward: kwargs",
        {_PLAN: lambda c: when.verl_trainer(c) and bool(c.reward.function)},
        inert.reward_key,
    ),
    _group("ray: address", {_PLAN: when.any_ray}, inert.ray_key("")),
    _group("ray: timeline debug", {_PLAN: when.our_ray}, inert.ray_key("")),
    _group(
        "ray: dashboard_address auth_token_file",
        {_PLAN: when.foreign_head},
        inert.ray_key("ray.address is empty: the run starts its own Ray cluster"),
    ),
    _group(
        "ray: *",
        {_PLAN: when.our_head},
        inert.ray_key(inert.RAY_RUNS),
    ),
    _group(
        "ray: node_deadline",
        {_PLAN: when.several_hosts},
        inert.ray_key("this run is on one host"),
    ),
    _group(
        "ray: worker_ports",
        {_PLAN: when.joined_hosts},
        inert.ray_key("no other host joins the Ray of this run"),
    ),
    _group(
        "verl: rollout_mode rollout_gpus trainer_mode train_nodes rollout_nodes source",
        {_PLAN: when.any_ray},
        inert.ray_key(""),
    ),
    _group("verl.fully_async: *", {_PLAN: when.fully_async}, inert.fully_async_key),
    _group(
        "verl: *",
        {_PLAN: when.our_ray},
        inert.ray_key(""),
    ),
    _group("verl: actor_deadline address_deadline health_deadline", {_PLAN: when.any_ray}, inert.ray_key("")),
    _group("verl.faults: *", {_PLAN: when.cpu_replicas}, inert.CPU_ONLY),
    _group("proxy: *", {_PLAN: when.our_proxy}, inert.no_proxy),
    _group("proxy: max_body_bytes", {_PLAN: when.not_command}, inert.no_proxy),
    _group("proxy: advertise", {_PLAN: when.our_sessions}, inert.no_sessions),
    _group("session_proxy: *", {_PLAN: when.our_sessions}, inert.no_sessions),
    _group("session_proxy: rewrite", {_PLAN: when.sessions_or_reads_variables}, inert.no_sessions),
    _group("session_proxy.scheduler: enabled", {_PLAN: when.session_service}, inert.no_sessions),
    _group("session_proxy.scheduler: *", {_PLAN: when.session_scheduler}, inert.scheduler_key),
    _group("session_proxy: port tokenizer processes", {_PLAN: when.session_service}, inert.no_sessions),
    _group(
        "supervise: restart_base restart_cap restart_jitter storm_window storm_failures stable_after",
        {_PLAN: when.restarts_services},
        inert.started_once,
    ),
    _group(
        "supervise: pass_env",
        {_PLAN: when.not_command},
        inert.sentence("your launch script inherits all variables"),
    ),
    _group(
        "supervise: replica_stagger",
        {_PLAN: when.needs_gpus},
        inert.sentence("the run does not start replicas on GPUs"),
    ),
    _group(
        "network: interface",
        {_PLAN: when.verl_or_command},
        inert.sentence("only verl's processes and launch scripts talk over it"),
    ),
    _group("supervise: trusted_roots", {"liverl_tui": when.always}),
    _group("notify: targets", {_PLAN: when.always}),
    _group("notify: events timeout", {_PLAN: when.notifies}, inert.notify_key),
    _group("notify: min_level", {_PLAN: when.notifies_alerts}, inert.notify_key),
    _group("observe: metrics_token_file", {_PLAN: when.serves_metrics}, inert.NO_METRICS),
    _group("ui: *", {"liverl_tui": when.always}),
    _engine_group("embedded: *", inert.embedded_engine_key("setting")),
    _engine_group("embedded.faults.late_replica: seconds", inert.ENGINE_ONLY),
    _engine_group("embedded.faults.late_replica: index", inert.late_replica_key, given=when.late_replica),
    _engine_group(
        "embedded.faults: *",
        inert.ENGINE_ONLY,
        but="crash_at_step hang_at_step nan_at_step tool_executor ignore_sigterm slow_tool slow_sandbox slow_last "
        "slow_update",
    ),
    _group(
        "embedded.faults: crash_at_step hang_at_step nan_at_step tool_executor slow_tool slow_sandbox slow_last "
        "slow_update",
        {_PLAN: when.embedded_trainer},
        inert.TRAINER_ONLY,
    ),
    _engine_group("embedded.faults: ignore_sigterm", inert.ENGINE_ONLY, when.embedded_trainer),
    _group(
        "experiment: trials_dir",
        {_PLAN: when.reads_variables},
        inert.trial_key("trials are saved in the run directory"),
    ),
    _group(
        "experiment: trajectory_logger_src",
        {_PLAN: when.reads_variables},
        inert.trial_key("liverl's proxy writes the trajectories"),
    ),
    _group("credentials: wandb_mode", {_PLAN: when.verl_or_command}, inert.NO_WANDB),
    _group("credentials: wandb_api_key", {_PLAN: when.logs_to_wandb}, inert.wandb_key),
)


@functools.cache
def rules() -> dict[str, KeyRule]:
    """Every key of the schema -> its rule; that of a key without an entry says that the plan always uses it."""
    keys = leaves()
    listed = expand((entry for group in _TABLE for entry in group), keys)
    return {key: listed.get(key, _ALWAYS) for key in keys}


def expand(entries: Iterable[tuple[str, _Entry]], keys: Iterable[str]) -> dict[str, _Entry]:
    """Each of ``keys`` that an entry names -> what the entry says of it. An entry ``section.*`` stands for the keys of
    ``section`` that have neither an entry of their own nor a ``*`` of an inner section.

    Raises:
        ValueError: an entry is listed twice, or names no key.
    """
    rules_of: dict[str, _Entry] = {}
    for name, rule in entries:
        if name in rules_of:
            raise ValueError(f"{name} is listed twice in the table")
        rules_of[name] = rule
    keys_of: dict[str, list[str]] = {name: [] for name in rules_of}
    for key in keys:
        if (entry := _nearest(key, rules_of)) is not None:
            keys_of[entry].append(key)
    for name, entry_keys in keys_of.items():
        if not entry_keys:
            raise ValueError(f"{name} in the table is not a key")
    return {key: rules_of[name] for name, entry_keys in keys_of.items() for key in entry_keys}


def _nearest(key: str, names: Container[str]) -> str | None:
    """The entry for ``key``: its own, else the ``*`` of the innermost section that has one."""
    parts = key.split(".")
    candidates = [key, *(".".join([*parts[:end], "*"]) for end in range(len(parts) - 1, 0, -1))]
    return next((name for name in candidates if name in names), None)


def consumers(config: RunConfig) -> dict[str, tuple[str, ...]]:
    """Every key that is used in this configuration -> the packages that use it. Inert keys are left out."""
    used = {key: _users(config, key) for key in rules()}
    return {key: packages for key, packages in used.items() if packages}


def why_inert(config: RunConfig, key: str) -> str | None:
    """Why nothing uses ``key`` in this configuration, as a text for the user; None if something uses it."""
    if _users(config, key):
        return None
    return rules()[key].why(config) or inert.unread(config, key)


def _users(config: RunConfig, key: str) -> tuple[str, ...]:
    return tuple(package for package, used in rules()[key].uses.items() if used(config))


def inert_keys(config: RunConfig, loaded: LoadedConfig | None = None) -> tuple[Inert, ...]:
    """The keys that nothing uses in this configuration, and why; with ``loaded``, also where the user set them."""
    origins: Mapping[str, str] = loaded.user_origins if loaded is not None else {}
    unused = []
    for key in rules():
        why = why_inert(config, key)
        if why is not None:
            unused.append(Inert(key=key, why=why, value=value_of(config, key), where=_origin(origins, key)))
    return tuple(unused)


def _origin(origins: Mapping[str, str], key: str) -> str | None:
    if key in origins:
        return origins[key]
    return next((where for other, where in origins.items() if other.startswith(f"{key}.")), None)
