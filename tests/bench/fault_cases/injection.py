"""Values of a configuration that Hydra, argparse, LiteLLM, a shell or a plan would read as something else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from kit.odd_values import HYDRA_PYTHON, ODD, REPLACED, read_by_hydra
from kit.plans import plan_of, replica, service
from kit.runs import toy
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from fault_cases.toys import stopped, toy_run
from liverl.config.errors import ConfigError
from liverl.plan import PlanError
from liverl.plan.spec import Plan
from liverl.proxy.config import render_litellm_config
from liverl.supervise.services import prepare

# key -> where verl finds it
VERL = {
    "model.model_path": "actor_rollout_ref.model.path",
    "vllm.dtype": "actor_rollout_ref.rollout.dtype",
    "algorithm.adv_estimator": "algorithm.adv_estimator",
    "algorithm.policy_loss_mode": "actor_rollout_ref.actor.policy_loss.loss_mode",
    "algorithm.kl_loss_type": "actor_rollout_ref.actor.kl_loss_type",
    "algorithm.loss_agg_mode": "actor_rollout_ref.actor.loss_agg_mode",
    "model.served_model_name": "actor_rollout_ref.rollout.engine_kwargs.vllm.served_model_name",
    "model.tool_parser": "actor_rollout_ref.rollout.engine_kwargs.vllm.tool_call_parser",
    "experiment.project_name": "trainer.project_name",
    "run.name": "trainer.experiment_name",
    "verl.agent_loop": "actor_rollout_ref.rollout.agent.default_agent_loop",
    "verl.wandb_proxy": "trainer.wandb_proxy",
}
PLACEHOLDERS = (
    *(
        "{run_dir}",
        "{attempt_dir}",
        "{generation}",
        "{port:http}",
        "{port:ray.gcs}",
        "{python:verl}",
        "{index}",
    ),
    *("a{run_dir}b", "{{run_dir}}"),
)
TEXTS = (*ODD, *REPLACED, *PLACEHOLDERS, "os.environ/LITELLM_MASTER_KEY", "a\0b")
EXPORTED = "harbor_agent.pod_name_prefix"  # a text that becomes a variable


def cases() -> Iterator[Case]:
    """Every odd text as every value that verl, an engine, LiteLLM or a process receives."""
    for key in VERL:
        yield Case(f"{len(TEXTS)} texts as {key}, read by Hydra", partial(_verl, key))
    yield Case("odd texts in trainer.overrides: as values, as names in mappings, in lists", _overrides)
    for key in ("model.model_path", "model.served_model_name", "model.tool_parser", "vllm.dtype"):
        yield Case(f"odd texts as {key}, read by argparse as vllm serve has it", partial(_argparse, key))
    yield Case("odd texts as the name of the model in LiteLLM's configuration", _litellm)
    yield Case("odd texts as a variable of an existing cluster, read by Hydra", _job_variable)
    yield Case("odd texts as arguments and variables of a process", _process)


def _planned(*sets: str, profile: str = "cpu-verl") -> Plan | None:
    """The plan; None if the configuration is refused by key and reason."""
    try:
        return plan_of(*sets, profile=profile)
    except (ConfigError, PlanError) as error:
        assert str(error).strip()
        return None


def _each(folder: Path, key: str, place: str, *further: str, texts: tuple[str, ...] = TEXTS) -> Outcome:
    """Plan with every text as a key, let Hydra read the trainer's words, and compare what verl finds."""
    lines, wanted = [], []
    for text in TEXTS:
        plan = _planned(f"{key}={text}", *further)
        if plan is None or text.strip().lower() in ("", "null", "''"):  # --set takes these as nothing
            continue
        values = prepare.Placeholders(
            Path("/r"),
            Path("/r/a"),
            1,
            {"verl": Path("/py")},
            _Ports(),  # type: ignore[arg-type]
        )
        words = [prepare.fill(word, values) for word in service(plan, "trainer").argv[3:]]
        lines.append([f"++{word.lstrip('+')}" for word in words if word.lstrip("+").startswith(f"{place}=")])
        assert len(lines[-1]) == 1
        wanted.append(text.strip())
    if not HYDRA_PYTHON:
        return Outcome(note="LIVERL_TEST_HYDRA_PYTHON names no Python with Hydra")
    for text, read in zip(wanted, read_by_hydra(folder, lines), strict=True):
        assert "error" not in read, (text, read["error"])
        for config in (read["once"], read["twice"]):
            value: Any = config
            for part in place.split("."):
                value = value[part]
            assert value == text, (text, value)
    return Outcome(note=f"{len(lines)} of {len(TEXTS)} taken")


class _Ports(dict[str, int]):
    """Any port."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> int:
        return 4000


def _verl(key: str, folder: Path) -> Outcome:
    return _each(folder, key, VERL[key])


def _job_variable(folder: Path) -> Outcome:
    """An existing cluster gets its variables from the command line."""
    place = "ray_kwargs.ray_init.runtime_env.env_vars.HARBOR_POD_NAME_PREFIX"
    return _each(folder, EXPORTED, place, "ray.address=h:6379")


def _overrides(folder: Path) -> Outcome:
    taken = 0
    for text in TEXTS:
        for value in ([text], {"k": text}, {text: 1}, {"k": [{text: text}]}):
            plan = _planned(f"trainer.overrides={json.dumps({'+v': value})}")
            if plan is None:
                continue
            taken += 1
            word = next(word for word in service(plan, "trainer").argv if word.startswith("+v="))
            if HYDRA_PYTHON and taken % 8 == 0:
                (read,) = read_by_hydra(folder, [[word]])
                assert read.get("once") == read.get("twice") == {"v": value}, (value, word, read)
    assert taken > 100
    return Outcome(note=f"{taken} taken")


def _argparse(key: str, folder: Path) -> Outcome:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("model")
    parser.add_argument("--served-model-name", nargs="+")
    for option in ("middleware", "tool-call-parser", "dtype", "host", "port", "tensor-parallel-size"):
        parser.add_argument(f"--{option}")
    for option in ("max-model-len", "gpu-memory-utilization", "max-num-seqs"):
        parser.add_argument(f"--{option}")
    for switch in ("enable-auto-tool-choice", "enforce-eager", "enable-chunked-prefill", "trust-remote-code"):
        parser.add_argument(f"--{switch}", action="store_true")
    field = {"model.model_path": "model", "model.tool_parser": "tool_call_parser"}.get(
        key, key.rpartition(".")[2]
    )
    for text in (*TEXTS, "--trust-remote-code", "--port=1", "-"):
        plan = _planned(f"{key}={text}", "run.replicas=1", profile="vllm-managed")
        if plan is None:
            continue
        read = parser.parse_args(list(replica(plan).argv[4:]))
        value = getattr(read, field)
        assert value in (text.strip(), [text.strip()]), (text, value)
        assert not read.trust_remote_code
    return Outcome()


def _litellm(folder: Path) -> Outcome:
    for text in TEXTS:
        try:
            rendered = render_litellm_config(
                ["http://h:1"], text, 60, 1, prefix="hosted_vllm/", token="token"
            )
        except ValueError:
            continue
        document = yaml.safe_load(rendered)
        names = [model["model_name"] for model in document["model_list"]]
        assert names == ["claude-*", f"hosted_vllm/{text}", text], (text, names)
        expanded = [leaf for leaf in _leaves(document) if leaf.startswith("os.environ/")]
        assert expanded == ["os.environ/LITELLM_MASTER_KEY"], (text, expanded)
    return Outcome()


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)


def _process(folder: Path) -> Outcome:
    """The keeper passes them on as they are, and nothing is a shell."""
    texts = [text for text in (*ODD, *REPLACED, "$(touch x)", "--multirun") if "\0" not in text]
    env = {f"ODD_{n}": text for n, text in enumerate(texts)}
    out = folder / "got.json"
    script = (
        "import json, os, sys, time; out = sys.argv.pop(1); "
        "got = [sys.argv[1:], {k: v for k, v in os.environ.items() if k.startswith('ODD_')}]; "
        "open(out + '.new', 'w').write(json.dumps(got)); os.rename(out + '.new', out); time.sleep(600)"
    )
    spec = msgspec.structs.replace(toy("odd"), argv=(sys.executable, "-c", script, str(out), *texts), env=env)
    with toy_run(folder / "run", (spec,)) as run:
        wait_until(out.exists, what="its answer")
        assert json.loads(out.read_text()) == [texts, env]
        return stopped(run)
