"""What the second look takes for the run's own, and what of it is news. SIMULATED: NVML."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from kit import checked_runs
from kit.checked_runs import GIB, TwoGpus

from liverl.config import load_config, resolved
from liverl.config.schema import RunConfig
from liverl.daemon.second_look import news
from liverl.model import Check
from liverl.plan import make_plan
from liverl.plan.spec import Plan, PortSpec, ServiceSpec
from liverl.preflight import gpus, run_checks
from liverl.preflight.ports import port_checks
from liverl.preflight.registry import CHECKS, Entry
from liverl.preflight.subject import Ours

FIRST, SECOND = "GPU-00000000", "GPU-00000001"
OTHER = 1  # pid of a process of somebody else
OURS = 4_000_001  # above any pid: no process of this host
STRANGER = 4_000_002


def made(folder: Path) -> tuple[Plan, RunConfig]:
    file = checked_runs.configured(folder, "managed")
    found = load_config(file, env={})
    config = resolved(found.config, env={"HOME": str(folder)}, cwd=folder, now=0.0)
    return make_plan(found, folder / "runs" / "p" / "n"), config


@pytest.mark.parametrize(
    ("held", "members", "reserved", "namespace", "status", "words"),
    [
        pytest.param({}, {}, {}, False, "ok", "2 free", id="nobody"),
        pytest.param(
            {0: OURS, 1: OURS}, {"r0": [OURS]}, {FIRST: "r0", SECOND: "r0"}, False, "ok", "2 used by this run, 0 free",
            id="our replica",
        ),
        pytest.param({0: OURS, 1: OTHER}, {"r0": [OURS]}, {FIRST: "r0"}, False, "fail", "only 1 of 2 GPUs are free",
                     id="a stranger on the second"),
        pytest.param({0: OTHER, 1: OURS}, {"r0": [OURS]}, {FIRST: "r0", SECOND: "r0"}, False, "fail",
                     "only 1 of 2 GPUs are free", id="a stranger on one that is reserved"),
        pytest.param({0: STRANGER, 1: STRANGER}, {}, {FIRST: "r0", SECOND: "r0"}, True, "ok",
                     "2 used by this run, 0 free", id="pids that a container does not see"),
        pytest.param({0: STRANGER, 1: STRANGER}, {}, {}, True, "fail", "only 0 of 2 GPUs are free",
                     id="strangers outside a container"),
    ],
)  # fmt: skip
def test_gpus_of_the_run_are_not_strangers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: dict[int, int],
    members: dict[str, list[int]],
    reserved: dict[str, str],
    namespace: bool,
    status: str,
    words: str,
) -> None:
    monkeypatch.setattr("liverl.observe.gpu.sampler.in_pid_namespace", lambda: namespace)
    nvml = TwoGpus()
    for index, pid in held.items():
        nvml.held[index].append((pid, 70 * GIB))
    (check,) = gpus.checks(*made(tmp_path), {}, nvml, Ours(members, reserved))
    assert check.status == status and words in check.text


def test_a_port_of_the_run_is_not_a_strangers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        spec = ServiceSpec("trainer", "trainer", argv=("true",), ports=(PortSpec("own", number),))
        plan = Plan("p/n", str(tmp_path), "managed", (), (spec,), None, 0)

        def status(ours: Ours | None) -> str:
            (check,) = port_checks(plan, ours)
            return check.status

        assert status(None) == "fail", "before the run starts, nothing is its own"
        assert status(Ours({}, {})) == "fail"
        assert status(Ours({"proxy": [os.getpid()]}, {})) == "ok"


def test_checks_get_what_the_run_holds(tmp_path: Path) -> None:
    """Each that changes, and could take the run's own processes for strangers'."""
    ours = Ours({"r0": [OURS]}, {})
    seen: list[object] = []

    def look(ours: Ours | None) -> None:
        seen.append(ours)

    class Told(Entry):
        @property
        def function(self):  # type: ignore[no-untyped-def]
            return look

    plan, config = made(tmp_path)
    entry = Told("ports", "ports:port_checks", changes=True)
    run_checks(plan, config, entries=[entry], ours=ours)
    run_checks(plan, config, entries=[entry])
    assert seen == [ours, None]
    assert {entry.id for entry in CHECKS if entry.changes} >= {"ports", "gpus", "run-directory"}
    assert all(entry.host and not entry.environment for entry in CHECKS if entry.changes)


WARNED = Check("GPUs", "warn", "2 needed, 1 free", "gpus")


@pytest.mark.parametrize(
    ("now", "before", "told"),
    [
        (Check("GPUs", "ok", "free", "gpus"), (), False),
        (WARNED, (), True),
        (WARNED, (WARNED,), False),
        (WARNED, (Check("GPUs", "ok", "2 free", "gpus"),), True),
        (Check("GPUs", "skipped", "no answer within 10 s", "gpus"), (WARNED,), True),
        (Check("GPUs", "fail", "taken", "gpus"), (Check("GPUs", "fail", "taken", "gpus"),), True),
    ],
)
def test_what_was_told_before_the_start_is_no_news(now: Check, before: tuple[Check, ...], told: bool) -> None:
    assert news([now], before) == ([now] if told else [])
