"""The Ray of a launch script that ends: a script stops its Ray first, which is no failure of Ray."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import NOW

from liverl.external import launch_script
from liverl.external.launch_script import WITHOUT_RAY, LaunchScript
from liverl.external.ray_cluster import RayCluster
from liverl.plan.spec import RayPlan

API, GCS = "127.0.0.1:8265", "127.0.0.1:6379"
GONE = RayCluster(1 << 22, 1, API, GCS, "python", "", {}, served=True, ours=True)
RAY = RayPlan("ours", "", "", "", "", "", 1, 60.0, 60.0, 60.0)


class Watched:
    """A launch script that runs, whose Ray is not found any more; ``clock`` is set by the test."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.said = NOW, list[str]()
        supervisor: Any = SimpleNamespace(
            now=lambda: self.clock,
            say=lambda kind, text, *a, **k: self.said.append(text),
            slots={},
            http=None,
            attempt_dir=tmp_path,
            process_scan=SimpleNamespace(members=dict),
            run="p/n",
            run_dir=tmp_path,
        )
        plan: Any = SimpleNamespace(ray=RAY, adopted_port=1, script=None)
        monkeypatch.setattr(launch_script.clusters, "running", lambda ours: [])
        self.script = LaunchScript(supervisor, plan)
        self.script._cluster = GONE

    async def state(self, seconds: float) -> str:
        self.clock += seconds
        await self.script._find_ray(1.0)
        return self.script._ray_state.state


async def test_ray_has_failed_once_its_script_has_gone_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch)
    assert await watched.state(0) == "degraded"
    assert await watched.state(WITHOUT_RAY - 1) == "degraded"
    assert await watched.state(1) == "failed"
    assert watched.said == ["degraded: Ray's dashboard has exited", "failed: Ray's dashboard has exited"]


async def test_a_script_that_ends_stops_its_ray_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch)
    assert await watched.state(0) == "degraded"
    watched.script._look_after_script()
    assert watched.script._ray_state.state == "stopped"
