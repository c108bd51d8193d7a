"""What a configuration says of itself: sizes, time-outs, LiveRL's habits, PPO's critic. Each fault under each topology
in which it is one: the verdict, what to do, the value that corrects it; nothing is changed or built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from kit import checked_runs
from kit.asked_once import templates_asked_once
from kit.checked_runs import TwoGpus, tree

from liverl.config import ConfigError, load_config
from liverl.observe.gpu import sampler
from liverl.plan.build import make_plan
from liverl.plan.verl_overrides import overrides
from liverl.preflight import flash_attention, liverl_habits
from liverl.util.multiples import nearest_multiples
from liverl_tui.cli import main as cli

OF_VERL = ("verl", "in_process")
NOT_SCRIPTS = ("embedded", "managed", "verl", "in_process")


class Fault(NamedTuple):
    """``sets`` and ``env``: what is wrong; ``where``: under which topologies; ``id``, ``words``, ``fix``, ``patch``,
    ``status``: of the one check that says so."""

    where: Sequence[str]
    sets: tuple[str, ...]
    id: str
    words: str
    fix: str = ""
    patch: Mapping[str, str] = MappingProxyType({})
    status: str = "fail"
    env: Mapping[str, str] = MappingProxyType({})


KUBERNETES = "harbor_agent.environment_import_path=mine.kubernetes:KubernetesEnvironment"
LONG = ("harbor_agent.override_timeout_sec=2400", "harbor_agent.max_timeout_sec=2400")
HARBOR = ("agent.kind=harbor", KUBERNETES, *LONG)
FAULTS = {
    "a mini batch over two ranks": Fault(
        OF_VERL, ("training.train_prompt_mini_batch_size=1", "training.n_resp_per_prompt=3",
                  "training.train_batch_size=8"), "batches",
        "3 trials per mini batch are not divisible by 2 trainer ranks",
        "train_prompt_mini_batch_size to 2, or training.n_resp_per_prompt to 2 or 4",
        {"training.train_prompt_mini_batch_size": "2"},
    ),
    "prompts of LiveRL's smoke": Fault(
        NOT_SCRIPTS, (), "liverl-variables", "TRAIN_BSZ: LiveRL's scripts read it, this run does not",
        "set training.train_batch_size to 16", {"training.train_batch_size": "16"}, "warn", {"TRAIN_BSZ": "16"},
    ),
    "prompts and trials": Fault(
        NOT_SCRIPTS, (), "liverl-variables", "TRAIN_BSZ, N_RESP: LiveRL's scripts read them",
        "and training.n_resp_per_prompt to 3",
        {"training.train_batch_size": "16", "training.n_resp_per_prompt": "3"}, "warn",
        {"TRAIN_BSZ": "16", "N_RESP": "3"},
    ),
    "routing replay": Fault(
        OF_VERL, (), "liverl-variables", "ENABLE_R3: LiveRL's scripts read it", "unset it", {}, "warn",
        {"ENABLE_R3": "True"},
    ),
    "importance correction": Fault(
        OF_VERL, (), "liverl-variables", "ROLLOUT_IS", "unset it", {}, "warn", {"ROLLOUT_IS": "sequence"}),
    "the scheduler of sessions": Fault(
        OF_VERL, (), "liverl-variables", "HARBOR_SESSION_LEVEL_SCHEDULER", "unset it", {}, "warn",
        {"HARBOR_SESSION_LEVEL_SCHEDULER": "1"},
    ),
    "kept trials": Fault(OF_VERL, (), "liverl-variables", "KEEP_TRIALS", "unset it", {}, "warn", {"KEEP_TRIALS": "1"}),
    "another head": Fault(
        OF_VERL, (), "liverl-variables", "MASTER_ADDR", "unset it", {}, "warn", {"MASTER_ADDR": "10.0.0.7"}),
    "a schedule that decays": Fault(
        ("script",), (), "learning-rate", "LR_SCHEDULER is cosine, and the script gets no number of steps",
        "set LR_SCHEDULER=constant", {}, "warn", {"LR_SCHEDULER": "cosine"},
    ),
    "Harbor is described, and not run": Fault(
        ("verl",), (KUBERNETES,), "harbor-described", "describes trials of Harbor's, but no row is run by Harbor",
        "set agent.kind to harbor", {"agent.kind": "harbor"}, "warn",
    ),
    "pods that end before the agent": Fault(
        ("verl",), (*HARBOR, "k8s.pod_active_deadline_seconds=1000"), "time-outs",
        "k8s.pod_active_deadline_seconds is 1000 s, but agent and verifier may take 3000 s",
        "to at least 4200", {"k8s.pod_active_deadline_seconds": "4200"},
    ),
    "pods that end before the verifier": Fault(
        ("verl",), (*HARBOR, "k8s.pod_active_deadline_seconds=2500"), "time-outs", "before their trials are graded",
        "to at least 4200", {"k8s.pod_active_deadline_seconds": "4200"}, "warn",
    ),
    "the FAQ's number of CPUs": Fault(
        OF_VERL, ("trainer.overrides={ray_init.num_cpus: 8}",), "faq-keys", "ray_init.num_cpus", "set ray.num_cpus"),
    "the FAQ's timeline": Fault(
        OF_VERL, ("trainer.overrides={ray_init.timeline_file: /t.json}",), "faq-keys", "ray_init.timeline_file",
        "set ray.timeline",
    ),
}  # fmt: skip
ALL = [(name, topology) for name, fault in FAULTS.items() for topology in fault.where]


@pytest.fixture
def checked(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """``checked(topology, *sets)``: exit code and checks of a run that could start otherwise."""
    templates_asked_once(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    unset = ("LIVERL_CACHE_DIR", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "HF_HOME")
    for name in (*unset, *(one.name for one in liverl_habits._KNOWN)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (TwoGpus(), ""))

    def check(topology: str, *sets: str) -> tuple[int, list[dict[str, Any]]]:
        if not (tmp_path / "my.yaml").exists():
            checked_runs.configured(tmp_path, topology)
        before = tree(tmp_path)
        words = [word for text in sets for word in ("--set", text)]
        code = cli.run(["check", "--json", "--config", str(tmp_path / "my.yaml"), *words])
        captured = capsys.readouterr()
        assert captured.out, captured.err
        assert tree(tmp_path) == before, "a check changes nothing, and builds nothing"
        return code, json.loads(captured.out)["checks"]

    return check


@pytest.mark.parametrize(("name", "topology"), ALL)
def test_one_check_says_what_is_wrong(
    checked: Callable[..., tuple[int, list[dict[str, Any]]]],
    name: str,
    topology: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = FAULTS[name]
    for variable, value in fault.env.items():
        monkeypatch.setenv(variable, value)
    code, checks = checked(topology, *fault.sets)
    told = next(check for check in checks if check["id"] == fault.id)
    assert told["status"] == fault.status and fault.words in told["text"], told
    assert fault.fix in told["fix"] and told["patch"] == dict(fault.patch), told
    assert (code == 3) == any(check["status"] == "fail" for check in checks)
    if fault.patch:  # with it the same check is content, or has nothing to say
        sets = [f"{key}={value}" for key, value in fault.patch.items()]
        _, checks = checked(topology, *fault.sets, *sets)
        assert not [c for c in checks if c["id"] == fault.id and c["status"] in ("fail", "warn")]


def test_the_three_sizes_are_explained(checked: Callable[..., tuple[int, list[dict[str, Any]]]]) -> None:
    fault = FAULTS["a mini batch over two ranks"]
    _, checks = checked("verl", *fault.sets)
    (told,) = [check for check in checks if check["id"] == "batches"]
    assert "the three sizes" in told["evidence"][0]["text"]


@pytest.mark.parametrize(
    ("number", "by", "nearest"), [(7, 4, (4, 8)), (3, 4, (4,)), (8, 4, (8, 12)), (1, 1, (1, 2))]
)
def test_nearest_numbers(number: int, by: int, nearest: tuple[int, ...]) -> None:
    assert nearest_multiples(number, by) == nearest


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("vllm.gen_tp=3",), "allowed: 1, 2, 4 or 8"),
        (("training.sp_size=3",), "allowed: 1, 2, 4 or 8"),
        (
            (
                "training.train_batch_size=5",
                "training.train_prompt_mini_batch_size=5",
                "training.n_resp_per_prompt=2",
            ),
            "allowed: 4 or 8",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_those_that_do(
    sets: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for text in sets for word in ("--set", text)]
    assert cli.run(["check", "--profile", "liverl-gen1", *given]) == 2
    assert words in capsys.readouterr().err


FLASH = "environments.verl.requirements=[verl, 'flash-attn>=2.8']"


def planned(*sets: str) -> dict[str, str]:
    loaded = load_config(None, profile="liverl-gen1", sets=sets, env={})
    return dict(word.lstrip("+").split("=", 1) for word in overrides(loaded.config))


def test_the_critic_of_ppo_begins_as_the_policy() -> None:
    found = planned("algorithm.adv_estimator=gae", "model.model_path=/models/mine", "training.sp_size=2")
    assert {key: value for key, value in found.items() if key.startswith("critic.")} == {
        "critic.model.path": "/models/mine",
        "critic.optim.lr": "1e-05",
        "critic.fsdp.param_offload": "True",
        "critic.fsdp.optimizer_offload": "True",
        "critic.ulysses_sequence_parallel_size": "2",
        "critic.ppo_max_token_len_per_gpu": str((40000 + 68000) // 2),
    }
    packed = planned("algorithm.adv_estimator=gae", "training.use_dynamic_bsz=false")
    assert packed["critic.ppo_micro_batch_size_per_gpu"] == "1"
    assert "critic.ppo_max_token_len_per_gpu" not in packed


def test_a_critic_on_cpus_is_refused() -> None:
    """verl 0.9.1 loads it with flash_attention_2 whatever its overrides say."""
    sets = ["data.train_index=/data/train.parquet", "verl.device=cpu", "vllm.gen_tp=1"]
    with pytest.raises(ConfigError) as refused:
        load_config(None, profile="liverl-gen1", sets=[*sets, "algorithm.adv_estimator=gae"], env={})
    (problem,) = refused.value.problems
    assert problem.key == "algorithm.adv_estimator" and "which runs on GPUs only" in problem.message
    assert load_config(None, profile="liverl-gen1", sets=[*sets, "algorithm.adv_estimator=rloo"], env={})


@pytest.mark.parametrize(
    ("sets", "status"),
    [
        (("algorithm.adv_estimator=gae",), "fail"),
        (('trainer.overrides={"critic.enable": true}',), "fail"),
        ((FLASH, "algorithm.adv_estimator=gae"), "ok"),
        (("algorithm.adv_estimator=gae", 'trainer.overrides={"critic.enable": false}'), "ok"),
        (("algorithm.adv_estimator=rloo",), "ok"),
    ],
)
def test_a_critic_without_flash_attention_does_not_start(sets: tuple[str, ...], status: str) -> None:
    """The environment is not built yet; its description says that it will have none."""
    loaded = load_config(
        None, profile="liverl-gen1", sets=["data.train_index=/data/train.parquet", *sets], env={}
    )
    (found,) = flash_attention.checks(make_plan(loaded, Path("/runs/x")), loaded.config, {})
    assert found.status == status, found
    if status == "fail":
        assert "verl loads PPO's critic with flash-attn, whatever trainer.overrides say" in found.text
        assert "set algorithm.adv_estimator: grpo, or another one without a critic" in found.fix


def test_without_ppo_there_is_no_critic() -> None:
    assert not [key for key in planned() if key.startswith("critic.")]
    own = planned("algorithm.adv_estimator=gae", "trainer.overrides={critic.model.path: /models/value}")
    assert own["critic.model.path"] == "/models/value"
