"""Why trials of a watched run failed: `watch` says what `doctor` says of the same folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.screens import trial
from msgspec.structs import replace

from liverl.model import Symptom, TrialsStatus
from liverl.offline.doctor.examine import examine
from liverl.watch import trial_causes
from liverl.watch.target import Target
from liverl.watch.trial_causes import TrialCauses, told_once
from liverl.watch.watcher import Watcher

FOLDER = Path(__file__).parents[1] / "data" / "doctor" / "P07-harbor-networks"


def test_watch_and_doctor_say_the_same_of_failed_trials(tmp_path: Path) -> None:
    """`watch` said only that they fail, with the beginning of the exception; `doctor`: Docker has no network left."""
    folder, own = tmp_path / "run", tmp_path / "own"
    shutil.copytree(FOLDER, folder)
    own.mkdir()
    watcher = Watcher(Target(folder), own)
    try:
        watcher.start()
        assert watcher.read_trials(60.0, lambda _: None)
        snapshot = watcher.poll()
    finally:
        watcher.close()
    cause = examine([folder]).verdict.cause
    assert cause is not None and cause.id == "docker-networks-used-up"
    found = {one.id: one for one in snapshot.symptoms}
    alert = found[f"log:{cause.id}"]
    assert alert.title == cause.title and alert.severity == cause.severity
    assert alert.cause == cause.cause and "3 of 6 trials of step 6 failed for this reason" in alert.cause
    assert "default-address-pool" in alert.fix and alert.since is not None
    assert "trials_failed" not in found and not any(
        one.title.startswith("Trials fail") for one in found.values()
    )


FAILED = trial(0, step=1, failure="x")


def test_failed_trials_are_read_again_only_when_another_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def failures(read: object, missed: object) -> tuple[()]:
        asked.append(1)
        missed("t-0/trial.log (no access)")  # type: ignore[operator]
        return ()

    monkeypatch.setattr(trial_causes, "failures", failures)
    monkeypatch.setattr(trial_causes, "SHARE", 0.0)
    causes = TrialCauses(tmp_path)
    assert causes.look(TrialsStatus()) == () and not asked and not causes.left_out
    one = TrialsStatus(newest=(FAILED,))
    assert causes.look(one) == causes.look(one) == () and len(asked) == 1
    assert causes.left_out == ("t-0/trial.log (no access)",)
    causes.look(TrialsStatus(newest=(FAILED, replace(FAILED, path="trials/step_0001/t-1"))))
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("known", "kept"), [(True, ["log:why", "reward_flat"]), (False, ["trials_failed", "reward_flat"])]
)
def test_that_trials_fail_is_told_where_nobody_knows_why(known: bool, kept: list[str]) -> None:
    found = [Symptom(name, "warning", "t", "", "") for name in ("trials_failed", "reward_flat")]
    causes = [Symptom("log:why", "warning", "t", "", "")] if known else []
    assert [one.id for one in told_once(found, causes)] == kept
