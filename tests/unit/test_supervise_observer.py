"""What the backend looks at, where looking may hang."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import gpu

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
        ledger=SimpleNamespace(holders={}),
        census=SimpleNamespace(members=dict),
        gpus=(),
        allowed_gpus=(),
        say=lambda *_: None,
    )
    free = threading.Event()

    def sample(*_: object) -> tuple[tuple[GpuStatus, ...], None]:
        assert free.wait(60)
        return (GPU,), None

    observer = Sampler(supervisor, host_interval=1, gpus_interval=1, trials_interval=1)
    monkeypatch.setattr(observer._gpus, "sample", sample)
    await observer.look_at_gpus_now()
    assert observer.facts.gpus == () and "has not answered" in (observer.facts.gpu_note or "")
    observer.close()  # NVML is not asked to shut down in the middle of a call
    free.set()
    await observer._look_at_gpus()
    assert observer.facts.gpus == (GPU,) and observer.facts.gpu_note is None
    assert supervisor.allowed_gpus == (GPU.uuid,), "they can be used from then on"
