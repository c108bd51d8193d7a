"""What the backend looks at, where looking may hang."""

from __future__ import annotations

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
