"""Runs of the embedded default with a known bottleneck, and without one, and what the metrics and trials of them say.

``PYTHONPATH=tests:backend:. .venv/bin/python -m kit.where_runs FOLDER`` makes each of them, in FOLDER, and writes
``tests/data/where/NAME.json``: the times in the metrics and the counts of the trials, by step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from kit.real import real_run
from kit.runs import ToyRun
from liverl.model import ReplicaSet, StepMetrics, StepTrials, TrialsStatus
from liverl.observe.metrics.recent import RecentSteps, of_steps
from liverl.observe.trials.replica_names import replica_names
from liverl.offline.readings import FileReadings
from liverl.offline.run import OfflineRun

FOLDER = Path(__file__).parents[1] / "data" / "where"
SESSIONS = "proxy.trials_through=sessions"
SEVEN = "training.total_steps=7"  # steps
# Name -> what its steps wait for, "" if nothing is wrong, and its settings.
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "slow-tool": ("tool", (SESSIONS, "embedded.faults.slow_tool=0.4", "harbor_runtime.num_workers=4")),
    "slow-sandbox": (
        "sandbox",
        (SESSIONS, "embedded.faults.slow_sandbox=1.5", "harbor_runtime.num_workers=4"),
    ),
    # LiteLLM records which replica answered. On a busy machine it adds half a second to each call, of both replicas.
    "slow-replica": ("replica", ("embedded.faults.slow_replica=2",)),
    "slow-replica-sessions": ("replica", (SESSIONS, "embedded.faults.slow_replica=0.5")),
    "long-tail": ("tail", (SESSIONS, "embedded.faults.slow_last=3")),
    "slow-update": ("update", (SESSIONS, "embedded.faults.slow_update=3")),
    "usual": ("", (SESSIONS,)),
    "usual-litellm": ("", ("embedded.turn_latency=0.2",)),
    "even-replicas": ("", (SESSIONS, "embedded.turn_latency=0.1")),
    "slow-model": ("", (SESSIONS, "embedded.turn_latency=0.3")),
    "few-workers": ("", (SESSIONS, "embedded.turn_latency=0.2", "harbor_runtime.num_workers=4")),
    "four-steps": ("", (SESSIONS, "embedded.faults.slow_update=3", "training.total_steps=4")),
}


class Facts(msgspec.Struct, frozen=True):
    """What a run says: the times in its metrics, its trials by step, the names of its replicas by their addresses."""

    metrics: tuple[StepMetrics, ...]
    steps: tuple[StepTrials, ...]
    names: dict[str, str]

    @property
    def recent(self) -> RecentSteps:
        """The steps as rules see them."""
        return of_steps(self.metrics)

    @property
    def trials(self) -> TrialsStatus:
        """The trials as a snapshot has them."""
        return TrialsStatus(steps=self.steps)


def facts_of(run_dir: Path) -> Facts:
    """What the files of an ended run say."""
    files = FileReadings(run_dir)
    files.metrics()
    state = OfflineRun(run_dir).poll()
    times = tuple(
        StepMetrics(
            one.step, {key: value for key, value in one.values.items() if key.startswith("timing_s/")}
        )
        for one in files.recent.steps
    )
    names = replica_names(state.services, state.replicas if state.replicas.items else ReplicaSet())
    return Facts(times, state.trials.steps, names)


def recorded(name: str) -> Facts:
    """What a recorded run said."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Facts)


def make(folder: Path, name: str, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """Make a run of ``RUNS``, to its end. ``ending``: sees to it that nothing of it is left."""
    run = ending(real_run(folder, SEVEN, *RUNS[name][1]))
    run.start()
    result = run.result(400)
    assert result.state == "done", result
    return run


def main(folder: Path) -> None:
    """Make and record all runs."""
    FOLDER.mkdir(exist_ok=True)
    for name in RUNS:
        runs: list[ToyRun] = []

        def end_later(run: ToyRun, runs: list[ToyRun] = runs) -> ToyRun:
            runs.append(run)
            return run

        try:
            run = make(folder / name, name, end_later)
            data = msgspec.json.format(msgspec.json.encode(facts_of(run.run_dir)), indent=1)
            (FOLDER / f"{name}.json").write_bytes(data + b"\n")
        finally:
            for one in runs:
                one.end()
        print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
