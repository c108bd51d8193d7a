"""What changes for a run's components when one key of the configuration changes, seen in what they are given."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec import inspect as types
from msgspec.structs import replace

from kit.variable_reads import THIRD_PARTY, own_reads
from liverl.config import LoadedConfig, RunConfig, load_config, resolved, run_directory
from liverl.config.coerce import plain_type
from liverl.config.consumers import rules, why_inert
from liverl.config.schema import leaves, value_of
from liverl.config.sections.notify import NotifyTarget
from liverl.config.sections.verl import AGENT_LOOPS
from liverl.plan import PlanError, build, make_plan
from liverl.plan.spec import Plan, ServiceSpec
from liverl.proxy.config import render_litellm_config
from liverl_tui.app.settings import UiSettings, read_settings

ENV = {"HOME": "/home/u"}
# An override that sets a variable in verl's workers
JOB_VARIABLE = "+ray_kwargs.ray_init.runtime_env.env_vars."
EVERYTHING = None  # what the user's own code reads

# Values for keys whose type does not say enough.
VALUES: dict[str, list[Any]] = {
    # with the default of one host, a half and twice of nothing would be that one
    "verl.train_nodes": [2],
    "verl.rollout_nodes": [2],
    "ray.address": ["192.0.2.9:6379"],
    "environments": [],  # see _entries
    "trainer.command": [("sh", "other.sh")],
    "agent.kind": ["chat"],
    "agent.python": ["mine:Agent"],
    "agent.command": [("agent", "-x")],
    "agent.verifier": [("judge",)],
    "agent.env": [{"MINE": "1"}],
    "agent.path": [("/mine",)],
    "reward.function": ["/mine/reward.py:score"],
    "reward.kwargs": [{"a": 1}],
    "notify.targets": [(NotifyTarget(command=("tell",)),), (NotifyTarget(webhook="file:/x"),)],
    "notify.events": [("failed", "alert", "stopped"), ("alert",)],
    "ui.keys": [{"logs.access": "B"}],
    "diagnosis.mute": [("reward_flat",)],
    "diagnosis.rules": [("/mine/site.toml",)],
    "trainer.env": [{"MINE": "1"}],
    "trainer.logs": [("logs/*.out",)],
    "trainer.overrides": [{"a.b": 1}, {"trainer.n_gpus_per_node": 4}],
    "training.train_batch_size": [128],  # the mini batch must divide it
    "training.train_prompt_mini_batch_size": [1],
    "network.interface": ["eth7"],
    "batch.end_time": ["2031-01-01T00:00:00"],
    "supervise.pass_env": [("MINE_*",)],
    "session_proxy.models": [("other",)],
    "embedded.faults.ignore_sigterm": [("trainer",), ("replica-0",)],
    "harbor_agent.host_path_mounts": [["/x"]],
    "supervise.trusted_roots": [("/x",)],
    "credentials.wandb_api_key": ["file:/keys/wandb"],
    "infrastructure.anthropic_api_key": ["sk-dummy", "file:/keys/run"],
}


def base(combination: tuple[str, str, str], *further: str) -> LoadedConfig:
    """A configuration of topology, engine and trainer kind. A command is always given: where it is not run it must
    have no effect."""
    topology, engine, kind = combination
    profile = (
        "liverl-gen1" if topology != "managed" else "embedded" if engine == "embedded" else "vllm-managed"
    )
    sets = [f"run.topology={topology}", f"run.engine={engine}", f"trainer.kind={kind}"]
    return load_config(profile=profile, sets=[*sets, "trainer.command=[bash, x.sh]", *further], env={})


def changed(config: RunConfig, key: str, value: Any) -> RunConfig:
    """``config`` with another value; what must hold between keys is not looked at."""
    return _replaced(config, key.split("."), value)


def _replaced(section: Any, path: list[str], value: Any) -> Any:
    name, rest = path[0], path[1:]
    return replace(section, **{name: _replaced(getattr(section, name), rest, value) if rest else value})


def candidates(config: RunConfig, key: str) -> list[Any]:
    """Other values that the key's type allows: larger and smaller ones, the other words, other text."""
    now: Any = config
    for part in key.split("."):
        now = getattr(now, part)
    found = VALUES[key] if key in VALUES else list(_values(leaves()[key], now))
    if key == "environments":
        found = [now | {name: replace(entry, venv_path="/other")} for name, entry in now.items()]
    return [value for value in found if value != now]


def _values(kind: types.Type, now: Any) -> Iterator[Any]:
    kind = plain_type(kind)
    if isinstance(kind, types.IntType | types.FloatType) and isinstance(now, str):
        now = None  # a word in the place of a number
    if isinstance(kind, types.UnionType):
        for member in kind.types:
            yield from _values(member, now)
    elif isinstance(kind, types.NoneType):
        yield None
    elif isinstance(kind, types.BoolType):
        yield from (True, False)
    elif isinstance(kind, types.LiteralType):
        yield from kind.values
    elif isinstance(kind, types.IntType):
        yield from (2 * (now or 0) + 1, max(1, (now or 0) // 2))
    elif isinstance(kind, types.FloatType):
        yield from (2 * (now or 0) + 0.25, (now or 0.5) / 2)
    elif isinstance(kind, types.StrType):
        yield "other"
    else:
        raise TypeError(f"{kind!r}: give its values in VALUES")


def effects(loaded: LoadedConfig, config: RunConfig) -> dict[str, Any]:
    """All that components of this configuration are given, by the package that hands it over."""
    fixed = resolved(config, env=ENV, cwd=Path("/w"), now=0.0)
    folder = run_directory(fixed)
    try:
        # A key counts as given when its value is changed, so all of them do. Which keys are inert is what the plans are
        # compared with, and half of the time that one takes.
        with patch.object(build, "inert_keys", return_value=()):
            plan = make_plan(replace(loaded, config=fixed, given=None), folder)
    except PlanError as error:
        return {"liverl.plan": str(error)}
    return {
        "liverl.config": str(folder),
        "liverl.plan": given(plan, config),
        "liverl_tui": _interface(config),
    }


def given(plan: Plan, config: RunConfig) -> dict[str, Any]:
    """What the plan hands to each component that it has. A variable that the component does not read is left out,
    and so is a setting of the backend for a component that is not there."""
    whole: dict[str, Any] = msgspec.to_builtins(plan)
    for name in ("inert", "warnings", "services", "replica_template", "ray"):
        whole.pop(name)
    proxied = any(service.kind == "proxy" for service in plan.services)
    template = plan.replica_template
    timeout, cooldown = whole.pop("trial_timeout"), whole["settings"].pop("cooldown")
    if proxied:  # serving/proxy_routes.py
        whole["litellm.yaml"] = _litellm(plan.served_model, timeout, cooldown)
    if template is not None:  # serving/scaling.py: a replica's time to drain
        whole["trial_timeout"] = timeout
    if template is None or not template.gpus:  # supervise/services/dependencies.py, Turns
        whole["settings"].pop("replica_stagger")
    whole["services"] = [service(spec, config) for spec in plan.services]
    whole["replica"] = template and service(template, config)
    if plan.ray is not None:
        child = {name: text for name, text in plan.ray.child_env.items() if name in THIRD_PARTY["ray"]}
        whole["ray"] = msgspec.to_builtins(replace(plan.ray, child_env=child))
    return whole


def service(spec: ServiceSpec, config: RunConfig) -> dict[str, Any]:
    """One service, with the variables that its processes read."""
    known = variables_read(spec, config)

    def is_read(name: str) -> bool:
        return known is EVERYTHING or name in known

    argv = tuple(
        word
        for word in spec.argv
        if not word.startswith(JOB_VARIABLE) or is_read(word.removeprefix(JOB_VARIABLE).partition("=")[0])
    )
    env = {name: text for name, text in spec.env.items() if is_read(name)}
    secrets = {name: path for name, path in spec.secret_env.items() if is_read(name)}
    plain: dict[str, Any] = msgspec.to_builtins(replace(spec, argv=argv, env=env, secret_env=secrets))
    return plain


def variables_read(spec: ServiceSpec, config: RunConfig) -> frozenset[str] | None:
    """The names of the variables that a service's processes read; EVERYTHING where code of the user's runs."""
    if spec.kind == "proxy":
        return _together(["litellm", "python"], ["liverl.proxy.runtime"])
    if config.trainer.kind == "command":
        return EVERYTHING
    if spec.environment != "verl":
        engine = ["vllm"] if spec.environment == "vllm" else []
        return _together([*engine, "python"], [] if engine else ["liverl.embedded"])
    if config.verl.agent_loop not in AGENT_LOOPS:
        return EVERYTHING
    engine = ["vllm"] if config.verl.device == "cuda" else []
    return _together([*engine, "verl", "ray", "wandb", "python"], ["liverl.verl_runtime", "liverl.embedded"])


def _together(programs: Iterable[str], packages: Iterable[str]) -> frozenset[str]:
    names = frozenset(name for program in programs for name in THIRD_PARTY[program])
    return names.union(*(own_reads(package) for package in packages))


@functools.cache
def _litellm(served: str, timeout: float, cooldown: float) -> str:
    return render_litellm_config(["http://127.0.0.1:4001"], served, timeout, cooldown, prefix="hosted_vllm/")


def _interface(config: RunConfig) -> UiSettings:
    """What the interface takes from the run's own config.yaml."""
    return _ui_settings(json.dumps(msgspec.to_builtins(config.ui)))


@functools.cache
def _ui_settings(section: str) -> UiSettings:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        lines = [
            f"  {name}: {json.dumps(value).strip(chr(34))}\n" for name, value in json.loads(section).items()
        ]
        path.write_text("ui:\n" + "".join(lines))
        return read_settings(path, {})


def components(effect: dict[str, Any]) -> dict[str, Any]:
    """What each component of a run gets, by its name: services, ``replica``, ``cluster`` (where Ray is looked for),
    ``proxy-list`` (LiteLLM's configuration), ``backend`` (the rest of the plan), ``directory``, ``interface``."""
    plan = effect["liverl.plan"]
    if not isinstance(plan, dict):
        return {"refusal": plan}
    found = {service["name"]: service for service in plan["services"]}
    parts = {
        "replica": "replica",
        "cluster": "ray",
        "proxy-list": "litellm.yaml",
        "environments": "environments",
    }
    found |= {name: plan[part] for name, part in parts.items() if plan.get(part) is not None}
    rest = {name: value for name, value in plan.items() if name not in ("services", *parts.values())}
    return found | {
        "backend": rest,
        "directory": effect["liverl.config"],
        "interface": effect["liverl_tui"],
    }


def reached(loaded: LoadedConfig, key: str) -> set[str]:
    """The components that get something else with another value of ``key``; values that the plan refuses do not
    count."""
    before, found = components(effects(loaded, loaded.config)), set[str]()
    for value in candidates(loaded.config, key):
        after = components(effects(loaded, changed(loaded.config, key, value)))
        if "refusal" not in after:
            found |= {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return found


def disagreements(loaded: LoadedConfig, known: dict[str, str] | None = None) -> list[str]:
    """Where the table of uses and the plans say different things about a key, one sentence for each. Keys in
    ``known`` are used in another way than a plan can show."""
    config = loaded.config
    before = effects(loaded, config)
    found = []
    for key in leaves():
        others = [(value, changed(config, key, value)) for value in candidates(config, key)]
        assert others, f"{key}: no other value to try"
        moved: set[str] = set()
        for value, other in others:
            after = effects(loaded, other)
            packages = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            moved |= packages
            why = why_inert(other, key)
            if packages and why is not None:
                found.append(
                    f"{key}: said to be inert ({why}), but {value!r} changes {_first(before, after)}"
                )
        declared = {
            package
            for one in (config, *(other for _, other in others))
            for package, used in rules()[key].uses.items()
            if used(one)
        }
        if key in (known or {}):
            if moved or not declared:
                found.append(f"{key}: is not to be in the list of keys that a plan cannot show")
        elif not moved and declared:
            values = [value_of(other, key) for _, other in others]
            found.append(
                f"{key}: said to be used by {', '.join(sorted(declared))}, but {values} change nothing"
            )
        elif declared - moved:
            found.append(f"{key}: {', '.join(sorted(declared - moved))} does not hand it on")
    return found


def _first(before: Any, after: Any, path: str = "") -> str:
    """Where two values differ first."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return _first(before.get(names[0]), after.get(names[0]), f"{path}/{names[0]}")
    if isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        index = next(i for i, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
        return _first(before[index], after[index], f"{path}/{index}")
    return f"{path}: {before!r} to {after!r}"
