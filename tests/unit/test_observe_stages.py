"""Boot stages of real starts, however the log is torn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.observe.boot.stages import CAP, StageParser, StageTracker, stage_of

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
VLLM = [
    "process",
    "config",
    "engine",
    "dist init",
    "loading weights",
    "weights loaded",
    "compiling",
    "compiled",
    "KV cache",
    "CUDA graphs",
    "engine up",
    "server",
    "server up",
]


def stages(name: str, kind: str, lines_at_once: int = 1) -> list[tuple[str, float | None]]:
    lines = (RECORDINGS / name).read_text().replace("\r", "\n").splitlines(keepends=True)
    parser = StageParser(kind)
    seen: list[tuple[str, float | None]] = []
    for start in range(0, len(lines), lines_at_once):
        stage = parser.feed("".join(lines[start : start + lines_at_once]))
        if stage is not None and (not seen or seen[-1] != stage):
            seen.append(stage)
    return seen


def test_vllm_on_a_gpu_goes_through_every_stage() -> None:
    seen = stages("h200/vllm0.log", "vllm")
    words = list(dict.fromkeys(stage.rstrip("0123456789/ ").removesuffix(" captured") for stage, _ in seen))
    assert words == VLLM
    assert ("CUDA graphs 12/51", 12 / 51) in seen
    assert ("loading weights", 1.0) in seen
    assert seen[-1] == ("server up", None)


def test_stages_of_a_failed_start_stop_where_it_failed() -> None:
    assert stages("vllm_fail_kv_too_small.log", "vllm")[-1] == ("weights loaded", None)


def test_litellm() -> None:
    assert stage_of("litellm", "") == ("importing", None)
    assert [stage for stage, _ in stages("litellm_startup.log", "litellm")] == [
        "config",
        "models set",
        "startup complete",
        "serving",
    ]


def test_trainer_with_bars_and_with_step_lines() -> None:
    seen = stages("h200/verl.log", "trainer")
    assert ("6 steps planned", None) in seen
    assert seen[-2:] == [("step 6/6", 1.0), ("training complete", 1.0)]
    assert seen.index(("step 0/6", 0.0)) < seen.index(("step 3/6", 0.5))
    # no total was printed there
    assert stages("verl_cpu/run6steps.stdout.log", "trainer")[-2:] == [
        ("step 6", None),
        ("training complete", 1.0),
    ]
    assert stage_of("trainer", "Total training steps: 8\n... step:2 - a/global_step:2.0 - b:1\n") == (
        "step 2/8",
        0.25,
    )


def test_a_stage_never_goes_back() -> None:
    parser = StageParser("vllm")
    parser.feed("init engine (profile, create kv cache)\n")
    assert parser.feed("Loading safetensors checkpoint shards:  50% Completed | 1/2\n") == ("engine up", None)


@pytest.mark.parametrize("kind", ["vllm", "litellm", "trainer"])
def test_nothing_known_in_other_text(kind: str) -> None:
    expected = ("importing", None) if kind == "litellm" else None
    assert stage_of(kind, "hello\nTraining Progress:\nstep:x - \nCapturing CUDA graphs: 3%|\n") == expected


@given(st.sampled_from(["vllm", "litellm", "trainer"]), st.text())
def test_any_text_is_survived(kind: str, text: str) -> None:
    for stem in ("", "Loading safetensors checkpoint shards: | 1/0", "Training Progress:", "step:1 - "):
        stage = stage_of(kind, stem + text)
        assert stage is None or stage[1] is None or 0 <= stage[1] <= 1


@settings(max_examples=20)
@given(st.integers(100, 3000))
def test_a_torn_log_tells_the_same(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    data = (RECORDINGS / "h200/vllm0.log").read_bytes()
    path = tmp_path_factory.mktemp("stages") / "log"
    tracker = StageTracker(path, "vllm")
    assert tracker.poll() is None
    with path.open("ab") as file:
        for at in range(0, len(data), size):
            file.write(data[at : at + size])
            file.flush()
            tracker.poll()
    assert tracker.done
    assert tracker.poll() == ("server up", None)


def test_a_flood_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        b"Resolved architecture: X\n" + b"x" * (2 * CAP) + b"\nStarting vLLM server on http://h:1\n"
    )
    assert StageTracker(path, "vllm").poll() == ("server", None)
