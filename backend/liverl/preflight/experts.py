"""Mixtures of experts: whether vLLM can split them over the GPUs of a replica, and whether routing replay has experts
to replay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.engines import ENGINES
from liverl.engines.vllm.memory import Shape
from liverl.model import Check, Evidence
from liverl.plan.spec import Plan
from liverl.preflight.model import fits, folder_of, tensor_parallel
from liverl.preflight.modelshape import read_shape
from liverl.preflight.script_paths import elsewhere
from liverl.preflight.subject import main_folder, main_service, variables_of

NAME = "experts"
_REPLAY, _MODEL = "ENABLE_R3", "MODEL_PATH"
_ON = ("true", "1", "yes", "on")
# With expert parallelism an expert is not split: by vLLM's option under verl, and in verl's spelling.
_PARALLEL = (
    "actor_rollout_ref.rollout.expert_parallel_size",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.enable_expert_parallel",
)


def checks(plan: Plan, config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Nothing of a model that names no experts; what cannot be read is told by the check of the model."""
    if when.command(config):
        yield from _replay(plan, config, env)
        return
    if when.managed(config) and not ENGINES[config.run.engine].gpus:
        return  # the embedded engine has no experts
    folder = folder_of(plan, config, env)
    shape = _shape(folder) if folder is not None else None
    replay = config.training.router_replay
    if when.our_ray(config) and replay != "disabled":
        if shape is None:
            yield Check(
                NAME,
                "skipped",
                f"training.router_replay is {replay}; whether the model has experts is unknown",
            )
        elif not shape.experts:
            text = f"training.router_replay is {replay}, but {folder} is a dense model: it has no routes to replay"
            fix, patch = "set training.router_replay to disabled", {"training.router_replay": "disabled"}
            yield Check(NAME, "fail", text, fix=fix, patch=patch)
    if folder is None or shape is None or not shape.experts:
        return
    key, tensor = tensor_parallel(config)
    if parallel := _expert_parallel(config):
        words = f"{parallel} keeps each expert whole: how {shape.experts} are spread was not looked at"
        yield Check(NAME, "skipped", words)
        return
    width = shape.expert_intermediate
    # vLLM's FusedMoE asserts intermediate_size % tp_size == 0 (model_executor/layers/fused_moe/layer.py).
    if width % tensor == 0:
        words = f"{shape.experts} experts, each {width} wide: {width // tensor} on each of {tensor} GPUs"
        yield Check(NAME, "ok", words)
        return
    fitting = [n for n in range(1, tensor) if not (width % n or shape.heads % n) and fits(config, n)]
    chosen = str(max(fitting)) if fitting else ""
    yield Check(
        NAME,
        "fail",
        f"{key} is {tensor}, but experts that are {width} wide cannot be split over {tensor} GPUs",
        evidence=(
            Evidence(f"{folder / 'config.json'}: {width} = {tensor} x {width // tensor} + {width % tensor}"),
        ),
        fix=f"set {key} to {' or '.join(map(str, fitting))}, or use expert parallelism"
        if fitting
        else "use expert parallelism",
        patch={key: chosen} if chosen and key == "vllm.gen_tp" else {},
        guess=len(fitting) > 1,
    )


def _expert_parallel(config: RunConfig) -> str:
    """The override that turns expert parallelism on; empty without one."""
    if not when.verl_trainer(config):
        return ""
    values = {key: str(sizing.override(config, key)).lower() for key in _PARALLEL}
    return next((key for key, value in values.items() if value not in ("none", "1", "false", "0")), "")


def _replay(plan: Plan, config: RunConfig, env: Mapping[str, str]) -> Iterator[Check]:
    """Routing replay of LiveRL's scripts, which ends a run with a dense model after 10 to 20 minutes."""
    script = main_service(plan)
    variables = variables_of(script, env)
    model = variables.get(_MODEL, "")
    if variables.get(_REPLAY, "").lower() not in _ON or not model or elsewhere(config):
        return
    shape = _shape(main_folder(plan) / model)
    if shape is None:
        yield Check(NAME, "skipped", f"{_REPLAY} is on, and whether {model} has experts is not known")
    elif shape.experts:
        yield Check(NAME, "ok", f"{_REPLAY} replays the routing of {shape.experts} experts")
    else:
        text = f"{_REPLAY} is on, but {model} has no experts: the trainer refuses it once the model is loaded"
        yield Check(NAME, "fail", text, fix=f"set {_REPLAY} to False (trainer.env, or your environment)")


def _shape(folder: Path) -> Shape | None:
    try:
        return read_shape(folder / "config.json")
    except (OSError, ValueError):
        return None
