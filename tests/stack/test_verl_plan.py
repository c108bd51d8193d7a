"""The overrides that we plan, read by verl's own configuration, and the environment of profile cpu-verl.

Needs an environment with verl 0.9.1: LIVERL_TEST_VERL_PYTHON names its Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liverl.config import load_config, resolved
from liverl.engines.tool_formats import VERL_FORMATS
from liverl.environments import default_cache_dir, ensure
from liverl.plan import make_plan
from liverl.plan.build import environment_spec
from liverl.plan.verl_trainer import MAIN, MAIN_ASYNC, path_files
from liverl.preflight.verl import LOGGERS

pytestmark = pytest.mark.stack

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
RUN = Path("/runs with space/p,=(1)/n")
INDEX = "data.train_index=/d/t.parquet"
CASES: dict[str, list[str]] = {
    "cpu-verl": [],
    "cpu-verl litellm": ["proxy.trials_through=litellm"],
    "cpu-verl in_process": ["run.topology=in_process"],
    "h200-smoke": [],
    "h200-smoke one GPU": ["infrastructure.ngpus_per_node=1"],
    "liverl-gen1": [INDEX],
    "liverl-gen1 standalone": [
        INDEX,
        *("verl.rollout_mode=standalone", "verl.rollout_gpus=4", "training.train_prompt_mini_batch_size=16"),
    ],
    "liverl-gen1 veomni R3": [
        INDEX,
        *("training.engine=veomni", "training.router_replay=R3", "training.rollout_is=token"),
        *("environments.verl.venv_path=/v",),
    ],
    "liverl-gen1 megatron R2": [
        INDEX,
        *("training.engine=megatron", "training.router_replay=R2", "environments.verl.venv_path=/v"),
    ],
    "liverl-gen1 fully_async veomni": [
        INDEX,
        *("verl.trainer_mode=fully_async", "verl.rollout_gpus=4", "training.engine=veomni"),
        *("training.router_replay=R3", "environments.verl.venv_path=/v"),
    ],
    "liverl-gen1 fully_async": [
        INDEX,
        *("verl.trainer_mode=fully_async", "verl.rollout_gpus=4", "verl.fully_async.staleness_threshold=1"),
    ],
    "liverl-gen1 fully_async pools": [
        INDEX,
        *("verl.trainer_mode=fully_async", "infrastructure.nnodes=3", "verl.train_nodes=2"),
        *("verl.rollout_nodes=1", "run.topology=in_process", "verl.fully_async.max_concurrent_samples=40"),
    ],
    "cpu-verl fully_async": [
        *("verl.trainer_mode=fully_async", "verl.rollout_gpus=1", "infrastructure.ngpus_per_node=2"),
    ],
    "liverl-gen1 attached": [INDEX, "ray.address=h:6379"],
    "liverl-gen1 all knobs": [
        INDEX,
        *("verl.disable_cascade_attn=true", "verl.wandb_proxy=http://p:80", "ray.timeline=true"),
        *(
            "vllm.enable_chunked_prefill=false",
            "model.served_model_name=a/b:c",
            "experiment.project_name=007",
        ),
        'trainer.overrides={"trainer.max_actor_ckpt_to_keep": 2, "++actor_rollout_ref.rollout.seed": 3}',
    ],
}
COMPOSE = """
import json, os, sys
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
import verl
from verl.experimental.agent_loop.tool_parser import ToolParser
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.tracking import Tracking
answer = {"values": {}, "parsers": sorted(ToolParser._registry), "loggers": sorted(Tracking.supported_backend)}
for name, (folder, main, overrides) in json.load(sys.stdin).items():
    with initialize_config_dir(os.path.join(os.path.dirname(verl.__file__), folder), version_base=None):
        config = compose(main, overrides)
        OmegaConf.resolve(config)
        if main == "ppo_trainer":  # the other one does not call it
            validate_config(config, need_reference_policy(config), need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        keys = [text.lstrip("+").partition("=")[0] for text in overrides]
        plain = {key: OmegaConf.select(config, key) for key in keys}
        answer["values"][name] = {
            k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in plain.items()
        }
print("ANSWER" + json.dumps(answer))
"""


# verl's module of a trainer -> where its configuration is.
CONFIGURATIONS = {
    MAIN: ("trainer/config", "ppo_trainer"),
    MAIN_ASYNC: ("experimental/fully_async_policy/config", "fully_async_ppo_trainer"),
}


def planned(name: str) -> list[str]:
    """The overrides of a case, without Hydra's own."""
    return asked(name)[1]


def asked(name: str) -> tuple[str, list[str]]:
    """The module of a case's trainer, and ``planned``."""
    sets = ["run.name=n", *CASES[name]]
    loaded = load_config(profile=name.split()[0], sets=sets, env={})
    config = resolved(loaded.config, env={"LIVERL_CACHE_DIR": "/c"}, cwd=Path("/w"), now=0.0)
    plan = make_plan(replace(loaded, config=config), RUN)
    (trainer,) = [service for service in plan.services if service.name == "trainer"]
    filled = [
        text.replace("{run_dir}", str(RUN)).replace("{attempt_dir}", f"{RUN}/a1") for text in trainer.argv[3:]
    ]
    return trainer.argv[2], [text for text in filled if not text.startswith("hydra.")]


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    if not PYTHON:
        pytest.skip("LIVERL_TEST_VERL_PYTHON names no Python with verl")
    told = subprocess.run(
        [PYTHON, "-c", COMPOSE],
        input=json.dumps({name: (*CONFIGURATIONS[asked(name)[0]], asked(name)[1]) for name in CASES}),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-3000:]
    line = next(line for line in told.stdout.splitlines() if line.startswith("ANSWER"))
    found: dict[str, Any] = json.loads(line.removeprefix("ANSWER"))
    return found


@pytest.mark.parametrize("name", CASES)
def test_verl_reads_what_was_planned(answer: dict[str, Any], name: str) -> None:
    values = answer["values"][name]
    for text in planned(name):
        key, _, written = text.lstrip("+").partition("=")
        value = values[key]
        if isinstance(value, bool) or value is None:
            assert str(value) == {"null": "None", "true": "True", "false": "False"}.get(written, written), key
        elif isinstance(value, int | float):
            assert value == pytest.approx(float(written)), key
        elif isinstance(value, list):
            assert f"[{','.join(value)}]" == written, key
        else:
            assert value == (written[1:-1] if written[:1] == "'" else written), key
    assert values["trainer.default_local_dir"] == f"{RUN}/checkpoints"


def test_names_that_verl_knows(answer: dict[str, Any]) -> None:
    assert set(VERL_FORMATS.values()) <= set(answer["parsers"])
    assert set(LOGGERS) <= set(answer["loggers"])


def test_verl_tells_its_standalone_replicas(tmp_path: Path) -> None:
    """The line at which verl 0.9.1 ends without our module; if it does no longer, the module can go."""
    if not PYTHON:
        pytest.skip("LIVERL_TEST_VERL_PYTHON names no Python with verl")
    code = "from verl.trainer.ppo.v1.trainer_separate_async import logger; logger.info('told', flush=True)"
    loaded = load_config(profile="liverl-gen1", sets=CASES["liverl-gen1 standalone"], env={})
    for file in path_files(loaded.config):
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "trainer" / "path"), "VERL_LOGGING_LEVEL": "INFO"}
    for plugins, told in (("none", "TypeError: Logger._log() got an unexpected"), ("auto", "told")):
        run = subprocess.run(
            [PYTHON, "-c", code],
            env={**env, "VERL_USE_EXTERNAL_PLUGINS": plugins},
            capture_output=True,
            text=True,
            timeout=190,
            check=False,
        )
        assert (run.returncode == 0, told in run.stderr) == (plugins == "auto", True), run.stderr[-3000:]


@pytest.mark.slow
def test_the_environment_of_the_cpu_profile_has_no_cuda() -> None:
    """Built by the project's own builder: 70 s here, most of it torch's wheel; 1.7 GB."""
    spec = environment_spec(load_config(profile="cpu-verl", env={}).config, "verl")
    python = asyncio.run(ensure(spec, default_cache_dir(), lambda text, share: None))
    code = "import importlib.metadata as m, json; print(json.dumps([d.metadata['Name'] for d in m.distributions()]))"
    told = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    names = [name.lower() for name in json.loads(told.stdout)]
    assert {"verl", "ray", "transferqueue", "torch", "msgspec", "aiohttp"} <= set(names)
    assert [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))] == []
