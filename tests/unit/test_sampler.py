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
