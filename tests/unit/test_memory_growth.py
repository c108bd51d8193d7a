"""Memory that fills up: what is a growth, when it is full, and which service takes it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.screens import NOW, service, snapshot
from msgspec.structs import replace

from liverl.diagnose.catalogue.memory import memory_fills
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import HostStats, Snapshot, Symptom, TreeStats
from liverl.observe.memory import Growth, MemoryWatch, memory_growth
from liverl.procs.memory_limit import MemoryLimit, MemoryUse

GIB = 1 << 30
Course = Callable[[float], float]  # seconds -> GiB in use


def watched(
    hours: float, used: Course, services: dict[str, Course] | None = None, total: float = 100.0
) -> MemoryWatch:
    watch, chance = MemoryWatch(), random.Random(1)
    for second in range(0, int(hours * 3600), 10):
        noise = chance.gauss(0, 0.2)
        sizes = {name: int(size(second) * GIB) for name, size in (services or {}).items()}
        watch.add(NOW + second, int((used(second) + noise) * GIB), int(total * GIB), sizes)
    return watch


def test_a_leak_is_full_at_the_rate_at_which_it_grew() -> None:
    found = watched(
        1.0, lambda s: 40 + s / 120, {"sessions": lambda s: 1 + s / 120, "proxy": lambda s: 2.0}
    ).growth()
    assert found is not None
    assert found.per_second == pytest.approx(GIB / 120, rel=0.05)
    assert found.seconds_left == pytest.approx(30 * 120, rel=0.1)
    ((name, used, rate),) = found.services
    assert name == "sessions" and rate == pytest.approx(GIB / 120, rel=0.01) and used > 30 * GIB


@pytest.mark.parametrize(
    "used",
    [
        lambda s: 90.0,
        lambda s: 90 - s / 600,
        lambda s: 40 + 40 * min(1.0, s / 300),
        lambda s: 40 + (s % 300) / 10,
        lambda s: 40 + 3 * (s > 1200),
        lambda s: 40 + s / 20000,
    ],
    ids=[
        "full but still",
        "falls",
        "a model is loaded",
        "freed every five minutes",
        "one step up",
        "full in days",
    ],
)
def test_what_is_no_growth_to_the_end(used: Course) -> None:
    found = watched(1.0, used).growth()
    assert found is None or found.seconds_left > 2 * 3600


def test_memory_that_a_step_takes_and_frees_is_no_growth() -> None:
    """A step of 40 minutes fills half of the host; only the least of each step counts, and ten steps are needed."""
    watch = watched(10.0, lambda s: 20 + 50 * (s % 2400) / 2400)
    assert watch.growth(2400.0) is None
    assert watched(1.0, lambda s: 40 + s / 120).growth(2400.0) is None, "not ten steps"
    assert watched(9.0, lambda s: 20 + 20 * (s % 2400) / 2400 + s / 700).growth(2400.0) is not None


def test_ten_minutes_are_needed() -> None:
    assert watched(0.13, lambda s: 40 + s / 20).growth() is None
    assert watched(0.25, lambda s: 40 + s / 20).growth() is not None


# --- the limit ----------------------------------------------------------------------------------------------


def group(**files: str) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        if str(path) == "/proc/self/cgroup":
            return files.get("cgroup", "0::/slurm/job_1/step_0\n")
        key = str(path.relative_to("/sys/fs/cgroup")).replace("/", "__").replace(".", "_")
        if key not in files:
            raise FileNotFoundError(path)
        return files[key]

    return read


@pytest.mark.parametrize(
    ("files", "use"),
    [
        ({}, None),
        ({"cgroup": "1:memory:/x\n"}, None),
        ({"slurm__job_1__memory_max": "max\n", "slurm__job_1__memory_current": "5\n"}, None),
        ({"slurm__job_1__memory_max": "100\n", "slurm__job_1__memory_current": "60\n"}, MemoryUse(60, 100)),
        (
            {
                "slurm__job_1__memory_max": "100",
                "slurm__job_1__memory_current": "60",
                "slurm__job_1__memory_stat": "anon 30\ninactive_file 25\n",
                "memory_max": "1000",
                "memory_current": "990",
            },
            MemoryUse(990, 1000),
        ),
        ({"cgroup": "0::/\n", "memory_max": "64", "memory_current": "32"}, MemoryUse(32, 64)),
    ],
    ids=["none", "version 1", "no limit", "of the job", "the one with least left", "a container"],
)
def test_the_limit_of_the_control_group(files: dict[str, str], use: MemoryUse | None) -> None:
    assert MemoryLimit(read=group(**files)).look() == use


def test_what_the_kernel_drops_first_is_not_in_use() -> None:
    files = {
        "cgroup": "0::/\n",
        "memory_max": "100",
        "memory_current": "90",
        "memory_stat": "inactive_file 50\n",
    }
    assert MemoryLimit(read=group(**files)).look() == MemoryUse(40, 100)


def test_this_machine_can_be_asked() -> None:
    use = MemoryLimit().look()
    assert use is None or 0 < use.used <= use.total


# --- in a run -----------------------------------------------------------------------------------------------


def run(
    hours: float, *, first: float = NOW, limit: MemoryLimit | None = None, **fields: object
) -> Growth | None:
    """The growth of a run whose proxy leaks a GiB every two minutes, on a host of 100 GiB."""
    watch, found = MemoryWatch(), None
    limit = limit or MemoryLimit(read=group())
    for second in range(0, int(hours * 3600), 10):
        leak = second / 120
        state = snapshot(
            at=first + second,
            host=HostStats(memory_used=int((40 + leak) * GIB), memory_total=100 * GIB),
            services=(
                service("proxy", "proxy", tree=TreeStats(3, 1.0, int((1 + leak) * GIB))),
                service("trainer", "trainer"),
            ),
            **fields,
        )
        found = memory_growth(watch, state, limit)
    return found


def test_a_run_is_watched_from_its_first_step_on() -> None:
    assert run(0.8) is not None
    assert run(0.4, step=None, started_at=NOW) is None, "models are loaded"
    assert run(1.2, step=None, started_at=NOW) is not None, "a run without a trainer has no steps"


def test_the_limit_of_a_container_counts_and_not_the_host() -> None:
    files = {"cgroup": "0::/\n", "memory_max": str(50 * GIB), "memory_current": str(20 * GIB)}
    assert run(0.8, limit=MemoryLimit(read=group(**files))) is None, "what it uses does not grow"


def alert(growth: Growth | None, state: Snapshot | None = None) -> Symptom | None:
    window = Window(state or snapshot(), None, RunContext(memory=growth))
    return next((one for one in memory_fills(window) if isinstance(one, Symptom)), None)


def test_the_alert_names_the_service_and_when_memory_is_full() -> None:
    growth = run(1.1)
    found = alert(growth)
    assert growth is not None and found is not None
    minutes = round(growth.seconds_left / 60)
    assert found.title == f"memory will be full in about {minutes} minutes" and found.severity == "warning"
    assert re.search(r"most of it by proxy \(33\.\d GiB\)", found.cause) and "restart the proxy" in found.fix
    assert found.evidence[0].text.startswith("proxy: 33.")
    soon = alert(replace(growth, seconds_left=500.0))
    assert soon is not None and soon.severity == "critical"


def test_no_alert_long_before_the_end_nor_when_the_run_is_over() -> None:
    growth = Growth(50 * GIB, 100 * GIB, GIB / 60, 3601.0)
    assert alert(None) is None and alert(growth) is None
    soon = replace(growth, seconds_left=3600.0)
    found = alert(soon)
    assert found is not None and "by no single service" in found.cause and "ps -eo" in found.fix
    assert alert(soon, snapshot(state="done")) is None


def test_a_service_that_takes_less_than_half_is_not_the_cause() -> None:
    growth = Growth(50 * GIB, 100 * GIB, 10.0, 600.0, (("proxy", GIB, 4.9),))
    found = alert(growth)
    assert found is not None and "by no single service" in found.cause and found.evidence
