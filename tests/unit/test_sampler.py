"""What the backend looks at, where looking may hang."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import gpu

from liverl.causes.match import whole
from liverl.daemon import sampler as observer_module
from liverl.daemon.sampler import Sampler
from liverl.model import GpuStatus
from liverl.observe.gpu.ledger import _BATCH

GPU = gpu(0)


async def test_a_driver_that_hangs_is_said_and_does_not_hold_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer_module, "FIRST_LOOK", 0.05)
    for name in ("CUDA_VISIBLE_DEVICES", *_BATCH):
        monkeypatch.delenv(name, raising=False)
    supervisor: Any = SimpleNamespace(
        run_dir=tmp_path,
        plan=SimpleNamespace(services=()),
        ledger=SimpleNamespace(holders={}),
        process_scan=SimpleNamespace(members=dict),
        end_causes=SimpleNamespace(matcher=whole()),
        gpus=(),
        allowed_gpus=(),
        say=lambda *_: None,
        spawn_task=None,
    )
    free = threading.Event()

    def sample(*_: object) -> tuple[tuple[GpuStatus, ...], None]:
        assert free.wait(60)
        return (GPU,), None

    sampler = Sampler(supervisor, host_interval=1, gpus_interval=1, trials_interval=1)
    monkeypatch.setattr(sampler._gpus, "sample", sample)
    await sampler.look_at_gpus_now()
    assert sampler.facts.gpus == () and "has not responded" in (sampler.facts.gpu_note or "")
    sampler.close()  # NVML is not asked to shut down in the middle of a call
    free.set()
    await sampler._look_at_gpus()
    assert sampler.facts.gpus == (GPU,) and sampler.facts.gpu_note is None
    assert supervisor.allowed_gpus == (GPU.uuid,), "they can be used from then on"


@pytest.mark.parametrize(("begins_after", "done"), [(None, 3), (2, 2), (0, None)])
async def test_an_attempt_that_begins_again_does_not_show_the_steps_before_as_done(
    begins_after: int | None, done: int | None, tmp_path: Path
) -> None:
    """Without a checkpoint it begins at step 1: the steps of the one before are thrown away when its trainer starts."""
    rows = [{"step": step, "data": {"critic/rewards/mean": step / 4}} for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    supervisor: Any = SimpleNamespace(
        run_dir=tmp_path,
        plan=SimpleNamespace(services=(), total_steps=8),
        end_causes=SimpleNamespace(matcher=whole()),
        slots={},
        gpus=(),
        allowed_gpus=(),
        say=lambda *_, **__: None,
        now=lambda: 1000.0,
        pace=SimpleNamespace(changed=lambda: None),
        spawn_task=None,
    )
    sampler = Sampler(supervisor, host_interval=1, gpus_interval=1, trials_interval=1)
    sampler.begins_after = begins_after
    await sampler.look_at_files()
    facts = sampler.facts
    assert (facts.metrics.step if facts.metrics is not None else None) == done
    assert facts.rewards.steps == (done or 0)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4, "data": {}}) + "\n")
    await sampler.look_at_files()
    assert sampler.facts.metrics is not None and sampler.facts.metrics.step == 4, "of this attempt"
    sampler.close()


CORE, OTHER = "val-core/sums/reward/mean@1", "val-core/z/acc/mean@1"


async def test_each_validation_is_told_with_its_scores_and_the_trials_that_failed(tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    supervisor: Any = SimpleNamespace(
        run_dir=tmp_path,
        plan=SimpleNamespace(services=(), total_steps=8),
        end_causes=SimpleNamespace(matcher=whole()),
        slots={},
        gpus=(),
        allowed_gpus=(),
        say=lambda kind, text, level="info", *_, **__: told.append((kind, text, level)),
        now=lambda: 1000.0,
        pace=SimpleNamespace(changed=lambda: None),
        spawn_task=None,
    )
    sampler = Sampler(supervisor, host_interval=1, gpus_interval=1, trials_interval=1)
    await sampler.look_at_files()
    told.clear()
    reward = {"critic/score/mean": 0.5}
    for number, failed in enumerate((False, True, False)):
        folder = tmp_path / "trials" / f"sums-{number}-00000000"
        folder.mkdir(parents=True)
        why = {"exception_type": "ValueError", "exception_message": "x"} if failed else None
        (folder / "liverl.json").write_text(json.dumps({"validation_after_step": 4, "task": "sums"}))
        result = {"exception_info": why, "ended_by": "return", "turns": 1}
        (folder / "result.json").write_text(json.dumps(result))
    await sampler.look_at_files()
    rows = [
        (0, {CORE: 0.25, "val-aux/sums/reward/std@1": 0.1}),
        (1, reward),
        (2, {**reward, CORE: 0.5, **{f"{OTHER}{n}": 0.125 for n in range(3)}}),
        (4, {**reward, CORE: 0.375}),
    ]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, "data": data}) + "\n" for step, data in rows)
    await sampler.look_at_files()
    sampler.close()
    found = [(text, level) for kind, text, level in told if kind == "validation"]
    assert [text for text, _ in found] == [
        f"validation before the first step: {CORE} 0.250",
        f"validation after step 2: {CORE} 0.500, {OTHER}0 0.125, {OTHER}1 0.125, 1 more",
        f"validation after step 4: {CORE} 0.375; the best so far was 0.500, after step 2; 1 of 3 trials failed",
    ]
    assert [level for _, level in found] == ["info", "info", "warning"]
    assert [text.split(":")[0] for kind, text, _ in told if kind == "step"] == [
        "step 1/8",
        "step 2/8",
        "step 4/8",
    ]
