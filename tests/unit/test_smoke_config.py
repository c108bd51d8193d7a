"""What makes a configuration small for a smoke run, and what a run says of scaling."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.config.smoke import NoSmoke, shrunk
from liverl.daemon.smoke import end_of_smoke
from liverl.diagnose.scaling import when_to_scale
from liverl.util.tree_size import measure
from liverl_tui.cli.options import UpOptions
from liverl_tui.cli.target import load_target
from liverl_tui.cli.up import up
from liverl_tui.text.errors import CliError

VERL = ("model.model_path=/m", "training.sp_size=1")


def config(*sets: str, profile: str = "liverl-gen1") -> RunConfig:
    return load_config(None, profile=profile, sets=(*VERL, *sets), env={}).config


def small(*sets: str, profile: str = "liverl-gen1") -> dict[str, str]:
    def fits(more: dict[str, str]) -> bool:
        try:
            config(*sets, *(f"{k}={v}" for k, v in more.items()), profile=profile)
        except Exception:
            return False
        return True

    return shrunk(config(*sets, profile=profile), fits).sets


def batch(prompts: int, n: int, mini: int) -> tuple[str, ...]:
    names = ("train_batch_size", "n_resp_per_prompt", "train_prompt_mini_batch_size")
    return tuple(f"training.{name}={value}" for name, value in zip(names, (prompts, n, mini), strict=True))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (batch(64, 8, 64), (8, 4, 8)),
        (batch(64, 8, 16), (8, 4, 8)),
        (batch(64, 8, 4), (8, 4, 4)),
        (batch(60, 8, 6), (8, 4, 4)),
        (batch(60, 8, 3), (8, 4, 2)),
        (batch(4, 2, 2), (4, 2, 2)),
        (batch(8, 4, 8), (8, 4, 8)),
        (batch(64, 1, 64), (8, 1, 8)),
        (batch(7, 8, 7), (7, 4, 7)),
    ],
)
def test_the_batch_of_a_smoke_run(sizes: tuple[str, ...], expected: tuple[int, int, int]) -> None:
    found = small(
        *sizes, "infrastructure.ngpus_per_node=4" if sizes[0].endswith(("=4", "=7")) else "run.seed=0"
    )
    names = ("train_batch_size", "n_resp_per_prompt", "train_prompt_mini_batch_size")
    assert tuple(int(found[f"training.{name}"]) for name in names) == expected
    rest = {key: value for key, value in found.items() if key.partition(".")[2] not in names}
    assert rest == {
        "training.total_steps": "2",
        "training.save_freq": "2",
        "training.test_freq": "-1",
        "training.val_before_train": "false",
    }


def test_where_the_gpus_do_not_divide_eight_prompts_more_are_taken() -> None:
    found = small(*batch(48, 1, 48), "infrastructure.ngpus_per_node=12", "vllm.gen_tp=4")
    assert (found["training.train_batch_size"], found["training.train_prompt_mini_batch_size"]) == (
        "12",
        "12",
    )


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (
            ("trainer.kind=command", "trainer.command=[bash, x.sh]"),
            'trainer.env: {TRAIN_BSZ: "8", N_RESP: "4"}',
        ),
        (
            ("trainer.overrides={trainer.save_freq: 7}",),
            "trainer.overrides has trainer.save_freq, which a smoke run",
        ),
        (
            ("trainer.overrides={+actor_rollout_ref.rollout.n: 7}",),
            "set training.n_resp_per_prompt in its place",
        ),
    ],
)
def test_what_cannot_be_made_small_is_told(sets: tuple[str, ...], why: str) -> None:
    with pytest.raises(NoSmoke) as refused:
        small(*sets)
    assert why in str(refused.value)


def test_a_smoke_run_has_a_name_of_its_own_and_says_what_it_changes(tmp_path: Path) -> None:
    def target(**options: object) -> object:
        return load_target(UpOptions(run_root=tmp_path, name="mine", **options))  # type: ignore[arg-type]

    real, first = target(), target(smoke=True)
    assert (real.run_dir.name, real.smoke, real.plan().smoke) == ("mine", (), ())
    assert first.run_dir.name == "smoke-mine" and first.run_dir.parent == real.run_dir.parent
    assert first.loaded.config.experiment.exp_name == "smoke-mine"
    assert (
        first.plan().smoke
        == first.smoke
        == (
            "training.n_resp_per_prompt 8 -> 4",
            "training.total_steps 20 -> 2",
            "training.save_freq 5 -> 2",
        )
    )
    assert first.loaded.config.training.total_steps == 2
    first.run_dir.mkdir(parents=True)
    assert target(smoke=True).run_dir.name == "smoke-mine-2"


@pytest.mark.parametrize(
    "more", [{"resume": ""}, {"resume_or_start": True, "name": "x"}, {"run": Path("/r")}]
)
def test_smoke_begins_a_run_and_continues_none(more: dict[str, object]) -> None:
    with pytest.raises(CliError, match="--smoke starts a run of its own"):
        up(UpOptions(smoke=True, **more))  # type: ignore[arg-type]


# --- when to scale ------------------------------------------------------------------------------------------

SIZES = {"training.max_prompt_length": "4000", "training.max_response_length": "8000"}
WIDE = {"training.max_prompt_length": "40000", "training.max_response_length": "91000"}


@pytest.mark.parametrize(
    ("metrics", "settings", "more", "said", "not_said"),
    [
        ({}, {}, {}, ["not yet", "waiting: not measured", "GPUs: not measured", "window: not known"], []),
        ({"timing_s/step": 10.0, "timing_s/gen": 4.0}, SIZES, {}, ["not yet", "40% of", "12,000 tokens"], ["waited"]),
        ({"timing_s/step": 10.0, "timing_s/gen": 6.0}, SIZES, {}, ["waited 60%", "standalone"], ["not yet"]),
        ({"fully_async/trainer/idle_ratio": 0.9, "timing_s/step": 9.0, "timing_s/gen": 1}, {}, {}, ["waited 90%"], []),
        ({"perf/max_memory_reserved_gb": 78.0}, SIZES, {"gpu_memory": 80 << 30}, ["took 98%", "MoE"], []),
        ({"perf/max_memory_reserved_gb": 40.0}, SIZES, {"gpu_memory": 80 << 30}, ["memory of a GPU: 50%"], ["MoE"]),
        ({"perf/max_memory_allocated_gb": 40.0}, SIZES, {}, ["memory of the GPUs: not measured"], ["MoE"]),
        ({}, SIZES, {"out_of_memory": True}, ["memory was not enough", "MoE"], ["not yet"]),
        ({}, WIDE, {}, ["131,000 tokens needs sequence parallelism"], ["not yet"]),
        ({"response_length/clip_ratio": 0.25}, SIZES, {}, ["25% of the responses end at the limit of 8000"], []),
        ({"response_length/clip_ratio": 0.05}, SIZES, {}, ["not yet", "5% of the responses"], []),
        ({}, SIZES | {"agent.kind": "harbor", "harbor_agent.agent_name": "x"}, {}, ["the agent x is not"], []),
        ({}, SIZES | {"agent.kind": "harbor", "harbor_agent.agent_name": "claude-code"}, {}, ["not yet"], []),
    ],
)  # fmt: skip
def test_when_to_scale(
    metrics: dict[str, float],
    settings: dict[str, str],
    more: dict[str, int],
    said: list[str],
    not_said: list[str],
) -> None:
    sentence = when_to_scale(metrics, settings, **more)  # type: ignore[arg-type]
    assert sentence.startswith("When to scale: ") and sentence.endswith(".")
    assert all(words in sentence for words in said), sentence
    assert not any(words in sentence for words in not_said), sentence


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"timing_s/save_checkpoint": 0.0365}, "1 file, written in 36 ms; it was removed"),
        ({"timing_s/save_checkpoint": 73.25}, "1 file, written in 73.2 s; it was removed"),
        ({}, "1 file, in a time that the trainer did not report; it was removed"),
    ],
)
def test_what_its_checkpoint_took(metrics: dict[str, float], words: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints/global_step_2").mkdir(parents=True)
    (tmp_path / "checkpoints/global_step_2/model").write_text("twelve bytes")
    taken = measure(tmp_path / "checkpoints").bytes
    assert taken >= 12
    assert (
        end_of_smoke(tmp_path / "checkpoints", metrics) == f"its checkpoint took {taken:,} bytes in {words}"
    )
    assert not (tmp_path / "checkpoints").exists()
    assert end_of_smoke(tmp_path / "checkpoints", metrics) == "no checkpoint was written"
