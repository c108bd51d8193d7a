"""When a key is used: one question about a configuration each."""

from __future__ import annotations

from msgspec.structs import replace

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.config.sections.verl import AGENT_LOOPS, PROXY_LOOP
from liverl.engines import ENGINES


def always(c: RunConfig) -> bool:
    return True


def never(c: RunConfig) -> bool:
    return False


def managed(c: RunConfig) -> bool:
    return c.run.topology == "managed"


def engine_reads(c: RunConfig, key: str) -> bool:
    """We start the replicas, and their engine depends on ``key``."""
    return managed(c) and key in ENGINES[c.run.engine].keys


def needs_gpus(c: RunConfig) -> bool:
    """We start replicas on GPUs."""
    return managed(c) and bool(ENGINES[c.run.engine].gpus)


def embedded_trainer(c: RunConfig) -> bool:
    return c.trainer.kind == "embedded"


def embedded_or_verl(c: RunConfig) -> bool:
    return c.trainer.kind in ("embedded", "verl")


def verl_trainer(c: RunConfig) -> bool:
    return c.trainer.kind == "verl"


def command(c: RunConfig) -> bool:
    return c.trainer.kind == "command"


def verl_or_command(c: RunConfig) -> bool:
    return verl_trainer(c) or command(c)


def own_agent_loop(c: RunConfig) -> bool:
    """An agent loop of the user's own runs inside verl."""
    return verl_trainer(c) and c.verl.agent_loop not in AGENT_LOOPS


def reads_variables(c: RunConfig) -> bool:
    """Code that is neither ours nor verl's gets LiveRL's variables: being exported is the use."""
    return command(c) or own_agent_loop(c)


def embedded_or_reads_variables(c: RunConfig) -> bool:
    return embedded_trainer(c) or reads_variables(c)


def limits_trials(c: RunConfig) -> bool:
    """Something ends a trial that takes too long."""
    proxy_loop = verl_trainer(c) and c.verl.agent_loop == PROXY_LOOP
    return proxy_loop or embedded_or_reads_variables(c)


def logs_to_wandb(c: RunConfig) -> bool:
    return verl_or_command(c) and c.credentials.wandb_mode != "disabled"


def counts_replicas(c: RunConfig) -> bool:
    """The overrides change how many replicas are expected of a launch script, which does not get them."""
    without = replace(c, trainer=replace(c.trainer, overrides={}))
    return command(c) and sizing.expected_replicas(c) != sizing.expected_replicas(without)


def trains(c: RunConfig) -> bool:
    return c.trainer.kind != "none"


def vllm_in_verl(c: RunConfig) -> bool:
    """verl's vLLM processes, or code that is not ours, get the variables that we set for vLLM."""
    return (verl_trainer(c) and c.verl.device == "cuda") or reads_variables(c)


def our_ray(c: RunConfig) -> bool:
    """We start Ray and verl ourselves."""
    return c.run.topology == "verl" and verl_trainer(c)


def our_head(c: RunConfig) -> bool:
    return our_ray(c) and not c.ray.address


def ray_port(c: RunConfig) -> bool:
    return our_head(c) or reads_variables(c)


def ray_dashboard_port(c: RunConfig) -> bool:
    return ray_port(c) or (our_ray(c) and not c.ray.dashboard_address)


def any_ray(c: RunConfig) -> bool:
    """There is a Ray in which we look for replicas, whoever starts it."""
    return our_ray(c) or (c.run.topology == "verl" and command(c))


def foreign_head(c: RunConfig) -> bool:
    return any_ray(c) and (bool(c.ray.address) or command(c))


def cpu_replicas(c: RunConfig) -> bool:
    return our_ray(c) and c.verl.device == "cpu"


def not_command(c: RunConfig) -> bool:
    """We start more than a launch script: a proxy, and services that are started again."""
    return not command(c)


def verl_venv(c: RunConfig) -> bool:
    """verl's environment is LiveRL's, and our own section names no other."""
    return reads_variables(c) or (verl_trainer(c) and not c.environments["verl"].venv_path)


def late_replica(c: RunConfig) -> bool:
    return c.embedded.faults.late_replica.seconds > 0
