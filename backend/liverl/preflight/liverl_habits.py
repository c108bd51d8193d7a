"""What LiveRL's users bring along: variables that its scripts read and nothing here does, and a configuration that
describes Harbor's trials while no row is run by Harbor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from liverl.config import conditions as when
from liverl.config.schema import RunConfig, value_of
from liverl.model import Check, Evidence
from liverl.plan.spec import Plan
from liverl.util import redact

VARIABLES, HARBOR, SCHEDULE = "LiveRL's variables", "Harbor", "learning rate"
_SCHEDULER = "LR_SCHEDULER"


class _Variable(NamedTuple):
    """A variable that LiveRL's scripts read. ``key``: the key that does it here, "" = none; ``instead``: what to do."""

    name: str
    key: str = ""
    instead: str = ""


# From LiveRL's documents of all generations: those that are no layer of our configuration (``config/env_vars.py``).
_KNOWN = (
    _Variable("TRAIN_BSZ", "training.train_batch_size"),
    _Variable("N_RESP", "training.n_resp_per_prompt"),
    _Variable("SP_SIZE", "training.sp_size"),
    _Variable("GEN_TP", "vllm.gen_tp"),
    _Variable("GPU_MEM_UTIL", "vllm.gpu_memory_utilization"),
    _Variable("TOTAL_EPOCHS", "training.total_epochs"),
    _Variable("MAX_RESP", "training.max_response_length"),
    _Variable("USE_KL_LOSS", "algorithm.use_kl_loss"),
    _Variable("VAL_TEMPERATURE", "algorithm.val_temperature"),
    _Variable("ENABLE_R3", "", "routing replay is set by trainer.overrides, in verl's spelling"),
    _Variable("ROLLOUT_IS", "", "importance correction is set by trainer.overrides, in verl's spelling"),
    _Variable("ROLLOUT_IS_THRESHOLD", "", "importance correction is set by trainer.overrides"),
    _Variable("HARBOR_SESSION_LEVEL_SCHEDULER", "", "there is no admission by sessions here"),
    _Variable("KEEP_TRIALS", "", "trials are kept; liverl-tui clean --trials removes them"),
    _Variable("MASTER_ADDR", "", "the head of Ray is this host, or what ray.address names"),
    _Variable("USE_NEW_VERL", "", "environments.verl says which verl is used"),
    _Variable("NEW_VERL_DIR", "", "environments.verl says which verl is used"),
    _Variable(_SCHEDULER, "", "set actor_rollout_ref.actor.optim.lr_scheduler_type in trainer.overrides"),
    _Variable("staleness_threshold", "", "fully asynchronous training is set by trainer.overrides"),
    _Variable("partial_rollout", "", "fully asynchronous training is set by trainer.overrides"),
)


def variables(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Those of LiveRL's variables that are set, and that this run does not read. A launch script reads what it
    inherits, so nothing is said of those."""
    if when.command(config):
        yield from _of_script(plan, env)
        return
    # Many shells have MASTER_ADDR; what a key does not do concerns only runs that start verl.
    set_here = [one for one in _KNOWN if env.get(one.name) and (one.key or when.our_ray(config))]
    other = [one for one in set_here if not one.key or str(value_of(config, one.key)) != env[one.name]]
    if not other:
        return
    rows = tuple(Evidence(_row(config, one, env[one.name])) for one in other)
    patch = {one.key: env[one.name] for one in other if one.key}
    names = ", ".join(one.name for one in other)
    text = f"{names}: LiveRL's scripts read {'it' if len(other) == 1 else 'them'}, this run does not"
    sets = " and ".join(f"{key} to {value}" for key, value in patch.items())
    fix = f"set {sets}, or unset the variable" if patch else "unset it, or do what is said above"
    yield Check(VARIABLES, "warn", text, evidence=rows, fix=fix, patch=patch, guess=bool(patch))


def _row(config: RunConfig, one: _Variable, value: str) -> str:
    shown = redact.value(value)[:80]
    if one.key:
        return f"{one.name}={shown}, but {one.key} is {value_of(config, one.key)}"
    return f"{one.name}={shown}: {one.instead}"


def _of_script(plan: Plan, env: Mapping[str, str]) -> Iterator[Check]:
    script = next((service for service in plan.services if service.ends_run), None)
    value = (script.env if script is not None else {}).get(_SCHEDULER) or env.get(_SCHEDULER, "constant")
    given = plan.script.given if plan.script is not None else None
    if value != "constant" and "training.total_steps" not in (given or ()):
        text = (
            f"{_SCHEDULER} is {value}, and the script gets no number of steps (training.total_steps): where verl does "
            "not know it, such a schedule decays to 0, and the model does not learn (actor/lr 0)"
        )
        fix = f"set {_SCHEDULER}=constant, or give the script the number of steps"
        yield Check(SCHEDULE, "warn", text, "learning-rate", fix=fix)


def harbor_described(config: RunConfig) -> Check | None:
    """A configuration that describes Harbor's trials, of which none is run."""
    given = config.harbor_agent
    described = [
        name
        for name, value in (
            ("harbor_agent.environment_import_path", given.environment_import_path),
            ("harbor_agent.agent_import_path", given.agent_import_path),
            ("k8s.kubeconfig", config.k8s.kubeconfig),
        )
        if value
    ]
    if not described or when.harbor(config) or not when.our_loop(config):
        return None
    text = (
        f"{', '.join(described)} {'describes' if len(described) == 1 else 'describe'} trials of Harbor's, but no row "
        f"is run by Harbor: agent.kind is {config.agent.kind}, so these keys, and all others of harbor_agent and k8s "
        "that only Harbor reads, have no effect"
    )
    return Check(HARBOR, "warn", text, fix="set agent.kind to harbor", patch={"agent.kind": "harbor"})
