"""A new attempt with other values, from the interface: what is asked, done, and said if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit import pilots
from kit.screens import FakeSource, settle, snapshot, view
from msgspec.structs import replace

from liverl.config import load_config, resolved, run_directory
from liverl.control.messages import BackendDead
from liverl.daemon.launch import LaunchError, create_run
from liverl.daemon.plan_change import PlanChange
from liverl.model import Check, Result, StepTrials, Symptom, TrialsStatus
from liverl.plan import make_plan
from liverl.rundir.layout import RunDir
from liverl_tui.app import next_attempt
from liverl_tui.app.app import LiverlApp
from liverl_tui.data.view import View
from liverl_tui.screens.alerts import AlertsScreen
from liverl_tui.screens.dialogs import Confirm, Options, Wrapped
from liverl_tui.text.next_attempt import consequences, question, set_options

PATCH = {"model.served_model_name": "other"}  # needs a new attempt
ALERT = Symptom("zero_tool_calls", "critical", "trials call no tool", "why", "what to do", patch=PATCH)


def make_run(folder: Path, *sets: str) -> Path:
    loaded = load_config(sets=["run.name=r", f"run.run_root={folder / 'runs'}", *sets], env={})
    loaded = replace(loaded, config=resolved(loaded.config, env={}, cwd=folder, now=0.0))
    run_dir = run_directory(loaded.config)
    create_run(loaded, make_plan(loaded, run_dir), run_dir)
    return run_dir


def checkpoint(run_dir: Path, step: int) -> None:
    (run_dir / "checkpoints" / f"global_step_{step}").mkdir(parents=True)
    (run_dir / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))


class Stopping(FakeSource):
    """A run that ends when it is told to, or fails at a stage."""

    def __init__(self, run_dir: Path, shown: View) -> None:
        super().__init__(run_dir, shown)
        self.fails: dict[str, Exception] = {}
        self.holds: asyncio.Event | None = None  # the stop waits for it

    async def ended(self, attempt: int) -> Result:
        if self.holds is not None:
            await self.holds.wait()
        if "ended" in self.fails:
            raise self.fails["ended"]
        result = await super().ended(attempt)
        self.queue.put_nowait(View("ended", snapshot=snapshot(symptoms=(ALERT,))))
        return result

    async def resume(self, change: PlanChange) -> None:
        await super().resume(change)
        if "resume" in self.fails:
            raise self.fails["resume"]
        self.queue.put_nowait(View("live", snapshot=snapshot(attempt=2)))


class Screen(pilots.Driven):
    def __init__(self, pilot: Any, source: Stopping) -> None:
        super().__init__(pilot)
        self.source = source

    @property
    def toasts(self) -> list[str]:
        return [toast.message for toast in self.app._notifications]

    @property
    def text(self) -> str:
        return "\n".join([str(self.app.screen), *self.toasts])

    @property
    def asked(self) -> str:
        return " ".join(words.words for words in self.app.screen.query(Wrapped))

    async def dialog(self) -> None:
        await self.until(lambda: isinstance(self.app.screen, Confirm) and self.asked)


@asynccontextmanager
async def opened(
    run_dir: Path, link: str = "live", readonly: bool = False, **fields: Any
) -> AsyncIterator[Screen]:
    shown = msgspec.structs.replace(view(symptoms=(ALERT,), **fields), link=link)
    source = Stopping(run_dir, shown)
    app = LiverlApp(source, readonly=readonly)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        yield Screen(pilot, source)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What preflight finds."""
    found: list[Check] = [Check("disk", "warn", "little space")]
    monkeypatch.setattr("liverl.preflight.run_checks", lambda plan, config: found)
    return found


def test_what_is_warned_of_a_value_that_changes_is_told(tmp_path: Path, checks: list[Check]) -> None:
    """`check` and `up` warned that the epochs are over before the steps; the dialogs of the interface said nothing."""
    run_dir = make_run(tmp_path)
    few = "4 rows are 1 step of 4 an epoch: training.total_epochs 3 ends the training after 3 of 20 steps"
    checks.append(Check("data.train_files", "warn", few, fix="add rows"))
    for key, told in (("training.total_epochs", 1), ("training.save_freq", 0)):
        found = next_attempt._changed(RunDir(run_dir), {key: "2"})
        assert found is not None
        prepared = next_attempt.Prepared({key: "2"}, *found, None, None, False)
        said = [f"data.train_files: {few}. To correct it: add rows"] * told
        assert next_attempt._preflight(prepared) == said


async def test_the_key_stops_the_run_and_resumes_it_with_the_values(
    tmp_path: Path, checks: list[Check]
) -> None:
    run_dir = make_run(tmp_path)
    checkpoint(run_dir, 5)
    async with opened(run_dir) as screen:
        await screen.press("exclamation_mark")
        await screen.until(lambda: isinstance(screen.app.screen, AlertsScreen))
        words = "f shows the change, and applies it: model.served_model_name: other"
        assert words in screen.app.screen.query_one("#alerts").text  # type: ignore[attr-defined]
        await screen.press("f")
        await screen.dialog()
        assert "Stop the run and resume it with model.served_model_name=other?" in screen.asked
        assert "Training resumes from the checkpoint of step 5; steps 6 to 8 are repeated." in screen.asked
        assert "1 running trial is cut off." in screen.asked
        assert screen.app.screen.query_one(Options).cursor == "no"
        await screen.press("n")
        assert screen.source.asked == [] and screen.source.resumed == []
        await screen.press("f")
        await screen.dialog()
        await screen.press("y")
        await screen.until(
            lambda: any("attempt 2 has begun with model.served_model_name" in t for t in screen.toasts)
        )
        assert screen.source.asked == [("stop", {"now": False})]
        (change,) = screen.source.resumed
        assert [(c.key, c.after) for c in change.changes] == [("model.served_model_name", "other")]
        assert not screen.app.next_attempt.command


async def test_an_ended_run_is_only_resumed(tmp_path: Path, checks: list[Check]) -> None:
    run_dir = make_run(tmp_path)
    checkpoint(run_dir, 7)
    async with opened(run_dir, "ended") as screen:
        screen.app.next_attempt.offer({"training.total_steps": "40"})
        await screen.dialog()
        assert "Resume the run with training.total_steps=40?" in screen.asked
        assert "checkpoint of step 7; no step is repeated." in screen.asked and "cut off" not in screen.asked
        await screen.press("y")
        await screen.until(lambda: screen.source.resumed)
        assert screen.source.asked == []


async def test_fewer_steps_than_a_live_run_has_saved_are_said_to_end_it(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    checkpoint(run_dir, 7)
    async with opened(run_dir) as screen:
        screen.app.next_attempt.offer({"training.total_steps": "5"})
        await screen.dialog()
        ends = "The run then ends: its newest checkpoint is of step 7, and 5 steps are wanted."
        assert ends in screen.asked and "goes on" not in screen.asked


async def test_fewer_steps_in_the_next_attempt_are_said_to_end_it(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path)
    checkpoint(run_dir, 7)
    async with opened(run_dir, "ended") as screen:
        screen.app.next_attempt.offer({"training.total_steps": "5"})
        await screen.dialog()
        assert "The run then ends: its newest checkpoint is of step 7" in screen.asked


async def test_without_a_checkpoint_it_begins_again_and_enter_means_no(
    tmp_path: Path, checks: list[Check]
) -> None:
    async with opened(make_run(tmp_path)) as screen:
        screen.app.next_attempt.offer(PATCH)
        await screen.dialog()
        assert "There is no checkpoint yet: training starts at step 1" in screen.asked
        assert "steps 1 to 8 are repeated" in screen.asked
        await screen.press("enter")
        assert screen.source.asked == [] and not isinstance(screen.app.screen, Confirm)


@pytest.mark.parametrize(
    ("stage", "error", "words"),
    [
        ("command", BackendDead("the backend is dead"), "failed while stopping the run: the backend is dead"),
        ("ended", BackendDead("no result"), "failed while stopping the run: no result"),
        ("check", None, "failed while checking this machine: preflight check failed (port): held by pid 1"),
        ("resume", LaunchError("no room\non disk", 3), "failed while starting attempt 2: no room on disk"),
    ],
)
async def test_a_failure_names_the_stage_and_the_command(
    tmp_path: Path, checks: list[Check], stage: str, error: Exception | None, words: str
) -> None:
    run_dir = make_run(tmp_path)
    async with opened(run_dir) as screen:
        if stage == "check":
            checks.append(Check("port", "fail", "held by pid 1"))
        elif stage == "command":
            assert error is not None
            screen.source.answer = error
        elif error is not None:
            screen.source.fails[stage] = error
        screen.app.next_attempt.offer(PATCH)
        await screen.dialog()
        await screen.press("y")
        await screen.until(lambda: any(words in toast for toast in screen.toasts))
        toast = next(toast for toast in screen.toasts if words in toast)
        assert f"--run-root {tmp_path / 'runs'} --set model.served_model_name=other" in toast
        assert "liverl-tui up --resume liverl/r" in toast
        assert bool(screen.source.resumed) == (stage == "resume")
        # It can be tried again.
        assert not screen.app.next_attempt.command


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model.tool_parser": "qwen3_coder"}, "the run has model.tool_parser=qwen3_coder already"),
        ({"model.tool_parser": "hermse"}, "did you mean hermes?"),
        ({"run.topology": "verl"}, "cannot be changed in run liverl/r"),
    ],
)
async def test_values_that_cannot_be_used_change_nothing(
    tmp_path: Path, values: dict[str, str], words: str
) -> None:
    async with opened(make_run(tmp_path)) as screen:
        screen.app.next_attempt.offer(values)
        await screen.until(lambda: any(words in toast for toast in screen.toasts))
        assert screen.source.asked == [] and not isinstance(screen.app.screen, Confirm)


@pytest.mark.parametrize(
    ("link", "readonly", "words"),
    [
        ("live", True, "read-only"),
        ("ended", True, "read-only"),
        ("lost", False, "no backend is running"),
        ("connecting", False, "not connected"),
        (
            "demo",
            False,
            "in a live run this would show the change, ask, and restart what reads it, with --set",
        ),
    ],
)
async def test_it_is_refused_with_the_reason(tmp_path: Path, link: str, readonly: bool, words: str) -> None:
    async with opened(make_run(tmp_path), link, readonly) as screen:
        screen.app.next_attempt.offer(PATCH)
        await screen.until(lambda: any(words in toast for toast in screen.toasts))
        assert screen.source.asked == [] and not isinstance(screen.app.screen, Confirm)


async def test_a_slurm_job_ends_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    async with opened(make_run(tmp_path)) as screen:
        screen.app.next_attempt.offer(PATCH)
        await screen.until(lambda: any("Slurm job" in toast for toast in screen.toasts))


async def test_leaving_meanwhile_is_asked_about(tmp_path: Path, checks: list[Check]) -> None:
    async with opened(make_run(tmp_path)) as screen:
        screen.source.holds = asyncio.Event()
        screen.app.next_attempt.offer(PATCH)
        await screen.dialog()
        await screen.press("y")
        await screen.until(lambda: screen.source.asked)
        screen.app.next_attempt.offer(PATCH)
        await screen.until(lambda: any("already being prepared" in toast for toast in screen.toasts))
        for key in ("q", "D"):
            await screen.press(key)
            assert (
                isinstance(screen.app.screen, Confirm)
                and "--set model.served_model_name=other" in screen.asked
            )
            await screen.press("enter")
            assert not screen.app._exit and not isinstance(screen.app.screen, Confirm)
        screen.source.holds.set()
        await screen.until(lambda: screen.source.resumed and not screen.app.next_attempt.command)


# -- words


@pytest.mark.parametrize(
    ("kind", "newest", "fields", "words"),
    [
        (
            "embedded",
            15,
            {"step": 17},
            "Training resumes from the checkpoint of step 15; steps 16 to 18 are repeated.",
        ),
        (
            "embedded",
            17,
            {"step": 17},
            "Training resumes from the checkpoint of step 17; step 18 is repeated.",
        ),
        ("verl", 20, {"step": 20}, "Training resumes from the checkpoint of step 20; no step is repeated."),
        ("verl", None, {"step": None}, "training starts at step 1; step 1 is repeated."),
        ("none", None, {}, "This run has no trainer; its replicas and its proxy are started again."),
        (
            "command",
            3,
            {},
            "The launch script is run again; it decides from which checkpoint training resumes.",
        ),
    ],
)
def test_what_a_new_attempt_costs(kind: str, newest: int | None, fields: dict[str, Any], words: str) -> None:
    shown = snapshot(trials=TrialsStatus(steps=(StepTrials(7, 1, 1, 0, None),)), **fields)
    assert consequences(shown, kind, newest, live=True).endswith(words)


def test_values_are_quoted_for_a_shell_and_secrets_are_not_shown() -> None:
    assert set_options({"a.b": "x y", "c.d": "1"}) == "--set 'a.b=x y' --set c.d=1"
    assert set_options({"a.key": "s3cret"}, {"a.key": True}) == "--set a.key=YOUR-VALUE"
    assert question("a=b", live=False) == "Resume the run with a=b?"


FEW = "4 rows are 1 step of 4 an epoch: training.total_epochs 3 ends the training after 3 of 20 steps"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """What the check of the rows finds; it is asked for nothing else."""
    found: list[Check] = []

    def made(_plan: Any, _config: Any, *, entries: Any) -> list[Check]:
        assert [entry.id for entry in entries] == ["data"]
        return [Check("data.val_files", "ok", "8 rows"), *found]

    monkeypatch.setattr("liverl.preflight.changed_rows.run_checks", made)
    return found


async def test_too_few_rows_are_warned_of_before_the_question(tmp_path: Path, rows: list[Check]) -> None:
    rows.append(Check("data.train_files", "warn", FEW, fix="add rows"))
    async with opened(make_run(tmp_path)) as screen:
        screen.app.next_attempt.offer({"training.total_steps": "30"})
        await screen.dialog()
        assert f"Warning: data.train_files: {FEW}. To correct it: add rows." in screen.asked


async def test_rows_that_cannot_be_trained_on_stop_no_run(tmp_path: Path, rows: list[Check]) -> None:
    """The checks of an attempt are made once the one before has been stopped: that was too late."""
    rows.append(Check("data.train_files", "fail", "has 4 rows, and training.train_batch_size is 64"))
    async with opened(make_run(tmp_path)) as screen:
        screen.app.next_attempt.offer({"training.total_epochs": "2"})
        await screen.until(lambda: "training.train_batch_size is 64" in screen.text)
        assert "nothing was changed: with training.total_epochs=2 a check fails" in screen.text
        assert not isinstance(screen.app.screen, Confirm) and screen.source.asked == []
        screen.app.next_attempt.offer({"training.save_freq": "3"})  # no matter of rows; and none is held up
        await screen.dialog()
        assert "Warning" not in screen.asked
