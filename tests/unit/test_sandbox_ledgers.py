"""The ledgers of a run's sandboxes are read once for all that look at them, and again only after they have changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from liverl.agents.harbor import owned
from liverl.agents.harbor.owned import Ledger
from liverl.sandboxes import ledgers
from liverl.sandboxes.kubernetes.seen import SeenPods
from liverl.sandboxes.ledgers import Ledgers, lost, read
from liverl.sandboxes.seen import SeenSandboxes
from liverl.sandboxes.sweep import look, lost_trials, open_trials, sweep


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The readings so far."""
    made: list[Path] = []

    def counted(run_dir: Path) -> list[owned.Entry]:
        made.append(run_dir)
        return owned.read_ledgers(run_dir)

    monkeypatch.setattr(ledgers, "read_ledgers", counted)
    return made


def run_with(folder: Path) -> tuple[Path, Ledger]:
    """A run with a trial in Docker and one in a cluster, of which nothing answers."""
    run = folder / "run"
    run.mkdir()
    ledger = Ledger(run, "worker-1", "attempt_001", {"DOCKER_HOST": f"unix://{folder}/none.sock"})
    ledger.begin_probe("t-docker")
    ledger.begin_pod(
        "t-pod", {"kubeconfig": f"{folder}/none", "namespace": "rl", "selector": "a=b"}, kept=False
    )
    return run, ledger


async def test_all_that_look_share_one_reading(tmp_path: Path, reads: list[Path]) -> None:
    run, ledger = run_with(tmp_path)
    shared = Ledgers()
    containers, pods = SeenSandboxes(shared), SeenPods(lambda work: asyncio.create_task(work), shared)  # noqa: PLW0108
    for now in (1.0, 2.0, 3.0):
        first = await asyncio.to_thread(containers.look, run, now, 5.0)
        second = await pods.look(run, now)
        assert (
            first is not None
            and first.backend == "docker"
            and second is not None
            and second.backend == "kubernetes"
        )
    assert len(reads) == 1
    ledger.over("t-docker")
    begun = shared.read(run)
    assert len(reads) == 2 and begun.docker.open == frozenset() and begun.pods.open == {"t-pod"}
    Ledger(run, "worker-2", "attempt_001", {}).begin_probe("t-new")
    assert shared.read(run).docker.open == {"t-new"} and len(reads) == 3
    assert shared.read(tmp_path / "other").docker.begun == {}, "another run's are others"


@pytest.mark.parametrize("ask", [look, lambda run: sweep(run, 5.0), lost_trials, open_trials])
def test_a_sweep_and_a_look_read_them_once(tmp_path: Path, reads: list[Path], ask: object) -> None:
    run, _ = run_with(tmp_path)
    ask(run)  # type: ignore[operator]
    assert len(reads) == 1


def test_who_died_is_asked_at_each_look(tmp_path: Path) -> None:
    """The ledger does not change by it."""
    run, _ = run_with(tmp_path)
    begun = read(run)
    assert lost(begun.docker) == frozenset() == lost(begun.pods) and open_trials(run) == 2
    entry = msgspec.structs.replace(
        begun.docker.begun["t-docker"], tick=1
    )  # of another process with this pid
    assert lost(msgspec.structs.replace(begun.docker, begun={"t-docker": entry})) == {"t-docker"}


@pytest.mark.parametrize("ask", [look, lambda run: sweep(run, 5.0)])
def test_a_ledger_that_cannot_be_read_is_said_and_not_called_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: object
) -> None:
    run, _ = run_with(tmp_path)

    def fails(run_dir: Path) -> list[owned.Entry]:
        raise OSError(5, "Input/output error", str(run_dir))

    monkeypatch.setattr(ledgers, "read_ledgers", fails)
    end = ask(run)  # type: ignore[operator]
    assert end is not None and not end.left
    (unknown,) = end.unknown
    assert unknown.startswith("the ledger of sandboxes cannot be read: ") and "Input/output error" in unknown
