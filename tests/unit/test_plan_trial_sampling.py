"""Which runs give LiteLLM the trainer's sampling parameters, and which ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liverl.config import load_config, resolved
from liverl.plan import make_plan
from liverl.plan.spec import ServiceSpec
from liverl.proxy.runtime.sampling import NEUTRAL, Policy, read_policy

VERL = (
    "trainer.kind=verl",
    "run.topology=verl",
    "run.engine=vllm",
    "model.model_path=/m",
    "proxy.trials_through=litellm",
)
VALUES = (
    "algorithm.temperature=0.8",
    "algorithm.top_p=0.9",
    "algorithm.top_k=40",
    "algorithm.val_temperature=0.2",
    "algorithm.val_top_p=0.7",
    "algorithm.val_top_k=5",
)
TRAINING = {"temperature": 0.8, "top_p": 0.9, "top_k": 40}
VALIDATION = {"temperature": 0.2, "top_p": 0.7, "top_k": 5}


def proxy_of(*sets: str, profile: str | None = None) -> ServiceSpec:
    env = {"HOME": "/home/user"}
    loaded = load_config(sets=["run.name=n", *sets], profile=profile, env=env)
    config = resolved(loaded.config, env=env, cwd=Path("/w"), now=0.0)
    plan = make_plan(replace(loaded, config=config), Path("/runs/p/n"))
    return next(service for service in plan.services if service.name == "proxy")


def policy(spec: ServiceSpec) -> Policy | None:
    """What the runner reads; None if it is not told of any."""
    named = spec.env.get("LIVERL_SAMPLING")
    if named is None:
        assert not spec.files
        return None
    (file,) = spec.files
    assert named == f"{{run_dir}}/{file.path}" == "{run_dir}/proxy/sampling.json"
    return read_policy(file.text.encode())


def whole(values: dict[str, Any]) -> dict[str, Any]:
    return {**NEUTRAL, **values}


def test_trials_of_verl_have_its_parameters() -> None:
    assert policy(proxy_of(*VERL, *VALUES)) == Policy(whole(TRAINING), whole(VALIDATION))


def test_the_embedded_trainer_seeds_its_own_requests() -> None:
    found = policy(proxy_of("algorithm.temperature=0.8", profile="embedded"))
    own = whole({"temperature": 0.8})
    assert found == Policy(own, own, keeps_seed=True)


@pytest.mark.parametrize(
    "sets",
    [
        ("trainer.kind=none",),
        (*VERL[:-1], "proxy.trials_through=sessions"),
        ("proxy.trials_through=sessions",),
        (*VERL[:-1], "verl.agent_loop=my_loop"),
    ],
    ids=["no trainer", "verl's sessions", "embedded sessions", "an agent loop of the user's"],
)
def test_elsewhere_clients_decide(sets: tuple[str, ...]) -> None:
    assert policy(proxy_of(*sets, *VALUES)) is None


@pytest.mark.parametrize(
    ("key", "value", "whose", "expected"),
    [
        ("temperature", 0.5, "training", {**TRAINING, "temperature": 0.5}),
        ("top_p", "0.5", "training", {**TRAINING, "top_p": 0.5}),
        ("val_kwargs.temperature", 0, "validation", {**VALIDATION, "temperature": 0}),
        ("val_kwargs.top_k", 7, "validation", {**VALIDATION, "top_k": 7}),
        (
            "temperature",
            "${oc.env:HEAT}",
            "training",
            TRAINING,
        ),  # only verl knows it; its trials say so themselves
    ],
)
@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_what_overrides_verls_counts(
    key: str, value: Any, whose: str, expected: dict[str, Any], sign: str
) -> None:
    override = json.dumps({f"{sign}actor_rollout_ref.rollout.{key}": value})
    found = policy(proxy_of(*VERL, *VALUES, f"trainer.overrides={override}"))
    assert found is not None and getattr(found, whose) == whole(expected)
