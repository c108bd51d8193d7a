"""The end of a batch job: who says it, what is said of one that cannot be read, and what views and the alert make of
it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.screens import snapshot

from liverl.config import ConfigError, load_config
from liverl.config.end_time import end_seconds
from liverl.control.messages import CommandError
from liverl.daemon.batch_end import ASK_S, BatchEndWatch
from liverl.diagnose.catalogue.batch_ends import batch_end_unsaved
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import BatchEnd, Result, StepMetrics, Symptom
from liverl.observe.batch_end import BatchEndRead, NoEnd, read_batch_end, squeue_end
from liverl.observe.metrics.recent import of_steps
from liverl.plan.spec import Settings
from liverl.preflight.batch_end import check
from liverl.snapshot_json import decode_snapshot, encode_snapshot
from liverl.util.before_end import FILE, SAVE_S, BeforeEnd, read
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import batch_words, plain_facts

NOW = 1_796_000_000.0  # 2026-11-30, as Unix seconds
JOB = {"SLURM_JOB_ID": "12"}


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


# --- as text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-30T08:00:00", 1796022000.0),  # Berlin: 07:00 UTC
        ("2026-11-30 08:00", 1796022000.0),
        ("2026-11-30T08:00:00+01:00", 1796022000.0),
        ("2026-11-30T07:00:00Z", 1796022000.0),
        (" 1796022000 ", 1796022000.0),
        ("1796022000.5", 1796022000.5),
    ],
)
def test_an_end_is_a_date_or_unix_seconds(text: str, at: float) -> None:
    assert end_seconds(text) == at


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-11-30", "08:00:00", "24:00:00", "3h", "1796022000000", "17960", "2026-13-01T00:00:00",
     "20261130", "N/A", "2026-11-30T25:00:00", "-1796022000"],
)  # fmt: skip
def test_what_is_no_end_is_quoted_with_what_was_expected(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^found .*, expected a date with a time, such as 2026-11-30T08:00:00"
    ):
        end_seconds(text)


def test_the_key_is_checked_with_its_place() -> None:
    for text in ("2026-11-30T08:00:00", "1796022000", ""):
        assert load_config(None, sets=[f"batch.end_time={text}"]).config.batch.end_time == text
    with pytest.raises(ConfigError, match=r"(?s)batch\.end_time.*'24:00:00'.*2026-11-30T08:00:00"):
        load_config(None, sets=["batch.end_time=24:00:00"])
    with pytest.raises(ConfigError, match=r"batch\.margin"):
        load_config(None, sets=["batch.margin=-1"])


def test_a_date_without_quotes_in_a_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("batch: {end_time: 2026-11-30T08:00:00}\n")
    assert load_config(file).config.batch.end_time == "2026-11-30T08:00:00"
    file.write_text("batch: {end_time: 1796022000}\n")
    assert load_config(file).config.batch.end_time == "1796022000"


# --- who says it ------------------------------------------------------------------------------------------


def answers(text: str | None) -> Any:
    def ask(job: str) -> str | None:
        assert job == "12"
        return text

    return ask


def fails(words: str) -> Any:
    def ask(job: str) -> str | None:
        raise NoEnd(words)

    return ask


LATER, LATEST, EARLIER = iso(NOW + 600), iso(NOW + 900), iso(NOW - 600)
ENDS = {"SLURM_JOB_END_TIME": str(int(NOW + 60))}


@pytest.mark.parametrize(
    ("env", "ask", "configured", "expected"),
    [
        ({}, fails("is never asked"), "", None),
        ({}, fails("is never asked"), LATER, (600, "batch.end_time")),
        ({**JOB, **ENDS}, fails("is never asked"), LATEST, (60, "SLURM_JOB_END_TIME")),
        (JOB, answers(LATER), LATEST, (600, "squeue")),
        (JOB, answers(None), LATEST, (900, "batch.end_time")),  # the partition has no limit
        (JOB, answers(None), "", None),
        ({**JOB, "SLURM_JOB_END_TIME": "soon"}, answers(LATER), "", (600, "squeue")),
        ({**JOB, "SLURM_JOB_END_TIME": "soon"}, answers(None), "", None),
        ({**JOB, "SLURM_JOB_END_TIME": str(int(NOW))}, answers(LATER), "", (600, "squeue")),
        (JOB, fails("failed: x"), LATEST, (900, "batch.end_time")),
        ({**JOB, "SLURM_JOB_END_TIME": "soon"}, fails("failed: x"), "",
            "squeue failed: x; set batch.end_time to the end of the present job"),
        (JOB, fails("failed: x"), "", "squeue failed: x; set batch.end_time to the end of the present job"),
        (JOB, answers("Unknown"), "", "squeue cannot be read: found 'Unknown', expected a date with a time, such as "
            "2026-11-30T08:00:00, or Unix seconds; set batch.end_time to the end of the present job"),
        (JOB, answers(EARLIER), "", "squeue is 2026-11-30 01:43:20 CET, 10 min in the past; set batch.end_time to "
            "the end of the present job"),
        ({}, None, EARLIER, "batch.end_time is 2026-11-30 01:43:20 CET, 10 min in the past; set it to the end of the "
            'present job, or to "" if there is none'),
        ({"SLURM_JOB_END_TIME": "soon"}, None, "", "SLURM_JOB_END_TIME cannot be read: found 'soon', expected a date "
            "with a time, such as 2026-11-30T08:00:00, or Unix seconds; set batch.end_time to the end of the present "
            "job"),
    ],
)  # fmt: skip
def test_the_first_that_tells_an_end(
    env: dict[str, str], ask: Any, configured: str, expected: tuple[float, str] | str | None
) -> None:
    found = read_batch_end(env, configured, NOW, ask)
    if isinstance(expected, tuple):
        assert found == BatchEndRead(NOW + expected[0], expected[1])
    else:
        assert found == (None if expected is None else BatchEndRead(problem=expected))


def program(folder: Path, text: str) -> None:
    file = folder / "squeue"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[ "$*" = "-h -j 12 -o %e" ] && [ $SLURM_TIME_FORMAT = standard ] && echo 2026-11-30T08:00:00',
         "2026-11-30T08:00:00"),
        ("echo N/A", None),
        ("echo NONE", None),
        ("printf '%s\\n%s\\n' 2026-11-30T08:00:00 2026-11-30T08:00:00", "2026-11-30T08:00:00"),
        ("exit 0", NoEnd("does not know job 12")),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
         NoEnd("failed: slurm_load_jobs error: Invalid job id specified")),
    ],
)  # fmt: skip
def test_squeue_is_asked(
    text: str, expected: str | NoEnd | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    if isinstance(expected, NoEnd):
        with pytest.raises(NoEnd, match=f"^{expected}$"):
            squeue_end("12")
    else:
        assert squeue_end("12") == expected


def test_squeue_that_is_not_there_or_a_job_without_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEnd, match="cannot be started"):
        squeue_end("12")
    with pytest.raises(NoEnd, match="SLURM_JOB_ID is '-x' and no number"):
        squeue_end("-x")


def test_squeue_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("liverl.observe.batch_end.SQUEUE_S", 0.2)
    with pytest.raises(NoEnd, match=r"did not answer within 0\.2 s"):
        squeue_end("12")


# --- before the start -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configured", "env", "ask", "status", "words"),
    [
        ("", {}, None, None, ""),
        (LATER, {}, None, "ok", "in 10 min, at 2026-11-30 02:03:20 CET (batch.end_time)"),
        (EARLIER, {}, None, "fail", "in the past; set it to"),
        ("", JOB, fails("failed: x"), "warn", "squeue failed: x; set batch.end_time"),
        (EARLIER, JOB, answers(LATER), "ok", "(squeue)"),
    ],
)
def test_the_check_before_the_start(
    configured: str, env: dict[str, str], ask: Any, status: str | None, words: str
) -> None:
    config = load_config(None, sets=[f"batch.end_time={configured}"]).config
    found = check(config, env, NOW, ask)
    assert (found and found.status) == status
    assert found is None or words in found.text


# --- views ------------------------------------------------------------------------------------------------


AT = snapshot().at


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (None, None),
        (BatchEnd(AT + 3 * 3600 + 12 * 60, "squeue"), "job ends in 3h12m"),
        (BatchEnd(AT + 59, "squeue"), "job ends in 59s"),
        (BatchEnd(AT - 180, "squeue"), "job is 3m over its time"),
        (BatchEnd(None, problem="squeue failed: x; set y"), "job ends at an unknown time: squeue failed: x; set y"),
    ],
)  # fmt: skip
def test_status_and_plain_mode_say_when_the_job_ends(end: BatchEnd | None, words: str | None) -> None:
    state = snapshot(batch_end=end)
    assert batch_words(state) == words
    lines = render(state, width=200).splitlines()
    by = f"{words}, by squeue" if end is not None and end.by else words
    assert (by in lines) == (words is not None)
    assert (f"batch: {words}" in plain_facts(state)) == (words is not None)
    assert decode_snapshot(encode_snapshot(state)).batch_end == end


def test_a_run_that_has_ended_says_nothing_of_the_job() -> None:
    result = Result("stopped", 5, None, 3, AT - 60, AT)
    state = snapshot(batch_end=BatchEnd(AT + 60, "squeue"), state="stopped", result=result)
    assert batch_words(state) is None and "job ends" not in render(state)


def test_plain_mode_tells_a_new_end_at_once() -> None:
    before = snapshot(batch_end=BatchEnd(AT + 600, "squeue"))
    later = snapshot(batch_end=BatchEnd(AT + 7200, "squeue"))
    assert plain_facts(later, before) == ["batch: job ends in 2h00m"]
    assert plain_facts(later, later) == []


# --- the alert --------------------------------------------------------------------------------------------

NEVER = "training.save_freq is -1, so none is ever saved"


def steps(*saves: float | None, step: float = 100.0) -> Any:
    rows = []
    for number, save in enumerate(saves, 1):
        values = {"timing_s/step": step} | ({} if save is None else {"timing_s/save_checkpoint": save})
        rows.append(StepMetrics(number, values))
    return of_steps(rows)


def alerts(left: float, recent: Any, **fields: Any) -> list[Symptom]:
    end = fields.pop("end", BatchEnd(AT + left, "squeue", margin=180.0, unsaved=NEVER))
    given: dict[str, Any] = {
        "step": 3,
        "total_steps": 100,
        "step_seconds": 100.0,
        "state": "running",
    } | fields
    window = Window(snapshot(batch_end=end, **given), None, RunContext(recent=recent))
    return [one for one in batch_end_unsaved(window) if isinstance(one, Symptom)]


LONGEST = 100.0 + SAVE_S + 180.0


@pytest.mark.parametrize(
    ("left", "recent", "fields", "raised"),
    [
        (LONGEST, steps(None, None, None), {}, False),
        (LONGEST - 1, steps(None, None, None), {}, True),
        (-5.0, steps(None, None, None), {}, True),
        (309.0, steps(30.0, None, None), {}, True),  # a timed save counts in place of the default
        (311.0, steps(30.0, None, None), {}, False),
        (100.0, steps(None, None, 30.0), {}, False),  # the newest step was just saved
        (100.0, steps(), {}, False),  # no step has been timed
        (100.0, steps(None, None, None), {"step": None}, False),
        (100.0, steps(None, None, None), {"state": "stopping"}, False),
        # The trainer saves: only the margin is left, and the newest checkpoint is older than it should be.
        (0, steps(*[None] * 9), {"step": 9, "end": BatchEnd(AT + 180.0, "squeue", margin=180.0)}, False),
        (0, steps(*[None] * 9), {"step": 9, "end": BatchEnd(AT + 179.0, "squeue", margin=180.0)}, True),
        (
            0,
            steps(*[None] * 5, 9.0, *[None] * 3),
            {"step": 9, "end": BatchEnd(AT + 99.0, "squeue", margin=180.0)},
            True,
        ),
        (
            0,
            steps(*[None] * 6, 9.0, *[None] * 2),
            {"step": 9, "end": BatchEnd(AT + 99.0, "squeue", margin=180.0)},
            False,
        ),
        (100.0, steps(None, None, None), {"end": BatchEnd(None, problem="x", unsaved=NEVER)}, False),
        (100.0, steps(None, None, None), {"end": None}, False),
        (
            165.0,
            steps(None, None, None),
            {"total_steps": 4},
            False,
        ),  # the last step, which saves, ends before
        (155.0, steps(None, None, None), {"total_steps": 4}, True),
    ],
)
def test_the_alert_before_an_end_that_nothing_saves(
    left: float, recent: Any, fields: dict[str, Any], raised: bool
) -> None:
    assert bool(alerts(left, recent, **fields)) == raised


def test_the_alert_names_the_numbers_and_the_reason() -> None:
    (one,) = alerts(200.0, steps(30.0, None, None))
    assert one.title == "the batch job ends before the next checkpoint" and one.severity == "critical"
    assert one.cause == (
        "it ends in 3 min (squeue), a step takes up to 1 min and a checkpoint 30 s; the newest checkpoint is of step 1 "
        f"of 3, and {NEVER}"
    )
    assert "TimeLimit" in one.fix and "training.save_freq" in one.fix
    (one,) = alerts(0, steps(None), end=BatchEnd(AT + 5.0, "batch.end_time", unsaved=NEVER))
    assert "TimeLimit" not in one.fix and "set batch.end_time" in one.fix


# --- the backend ------------------------------------------------------------------------------------------


class Hub:
    """What ``BatchEndWatch`` uses of the supervisor."""

    def __init__(self, folder: Path) -> None:
        self.attempt_dir, self.clock, self.said = folder, 5_000.0, list[tuple[str, str]]()
        self.batch_end, self.unwritten = "", list[str]()
        self.records = SimpleNamespace(write_failed=self.unwritten.append)
        trainer = SimpleNamespace(name="trainer", ends_run=True)
        self.plan = SimpleNamespace(
            services=(SimpleNamespace(name="proxy", ends_run=False), trainer), script=None
        )

    def now(self) -> float:
        return self.clock

    def say(self, kind: str, text: str, level: str = "info", *_rest: object, **_more: object) -> None:
        assert kind in ("batch", "checkpoint")
        self.said.append((level, text))


class Watched:
    """A watch whose clocks and whose squeue the test sets. ``ends``: what squeue prints."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, ends: str | NoEnd | None) -> None:
        self.hub, self.ends, self.wall, self.ran, self.asked = Hub(folder), ends, NOW, 0.0, 0
        self.settings = Settings(batch_unsaved="", batch_margin=90.0)
        monkeypatch.setattr("liverl.daemon.batch_end.clocks.ran", lambda: self.ran)
        self.watch = BatchEndWatch(
            self.hub,  # type: ignore[arg-type]
            lambda: self.settings,
            JOB,
            self._ask,
            lambda: self.wall,
        )

    def _ask(self, job: str) -> str | None:
        self.asked += 1
        if isinstance(self.ends, NoEnd):
            raise self.ends
        return self.ends

    def look(self, after: float = 0.0) -> BatchEnd | None:
        """Look, so many seconds later."""
        self.ran, self.wall, self.hub.clock = self.ran + after, self.wall + after, self.hub.clock + after
        asyncio.run(self.watch.look())
        return self.watch.status


def test_the_end_is_on_the_clock_of_the_run_and_is_asked_for_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path, monkeypatch, LATER)
    assert one.look() == BatchEnd(5_600.0, "squeue", "", 90.0, "")
    assert one.hub.said == [("info", "the batch job ends in 10 min, at 2026-11-30 02:03:20 CET (squeue)")]
    one.wall += 86_400  # somebody sets the system's clock
    assert one.look(ASK_S - 1) == BatchEnd(5_600.0, "squeue", "", 90.0, "") and one.asked == 1
    one.wall -= 86_400
    assert one.look(1.0) == BatchEnd(5_600.0, "squeue", "", 90.0, "") and one.asked == 2
    one.ends = LATEST  # an operator raises the limit
    found = one.look(ASK_S)
    assert found is not None and found.at == pytest.approx(5_900.0)
    assert len(one.hub.said) == 2
    one.ends = None
    assert one.look(ASK_S) is None
    assert one.hub.said[2:] == [("info", "the batch job has no end any more")]


def test_a_known_end_stays_where_nothing_else_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path, monkeypatch, LATER)
    one.look()
    one.ends = NoEnd("failed: x")
    assert one.look(ASK_S) == BatchEnd(5_600.0, "squeue", "", 90.0, "")
    one.ends = LATER
    assert one.look(2 * ASK_S) == BatchEnd(5_600.0, "squeue", "", 90.0, ""), "the job outlasts its end"
    assert len(one.hub.said) == 1


def test_an_end_that_is_not_known_is_told_once_and_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path, monkeypatch, NoEnd("failed: x"))
    problem = "squeue failed: x; set batch.end_time to the end of the present job"
    assert one.look() == one.look(ASK_S) == BatchEnd(None, "", problem, 90.0, "")
    assert one.hub.said == [("warning", f"it is not known when the batch job ends: {problem}")]
    one.ends = LATEST
    found = one.look(ASK_S)
    assert found is not None and found.by == "squeue" and len(one.hub.said) == 2


def test_keys_that_are_changed_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Watched(tmp_path, monkeypatch, None)
    assert one.look() is None and one.hub.said == []
    one.settings = Settings(batch_end_time=LATER, batch_margin=7.0, batch_unsaved=NEVER)
    found = one.look(5.0)
    assert found is not None and found == BatchEnd(found.at, "batch.end_time", "", 7.0, NEVER)
    assert found.at == pytest.approx(5_600.0)
    one.settings = Settings(batch_end_time=LATER, batch_margin=8.0, batch_unsaved="")
    assert one.look(5.0) == BatchEnd(found.at, "batch.end_time", "", 8.0, "")
    one.settings = Settings(batch_end_time=EARLIER, batch_unsaved="")
    found = one.look(5.0)
    assert found is not None and found.at is None and "in the past" in found.problem


def test_trainers_are_told_the_end_the_margin_and_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path, monkeypatch, None)
    one.look()
    assert not (tmp_path / FILE).exists() and one.hub.batch_end == "", "there is nothing to tell"
    one.ends = LATER
    one.look(ASK_S)
    assert read(tmp_path / FILE) == BeforeEnd(NOW + 600, 90.0, 0)
    assert one.hub.batch_end == str(int(NOW + 510))
    written = (tmp_path / FILE).stat()
    one.look(5.0)
    assert (tmp_path / FILE).stat() == written, "it is not written again"
    assert "at the end of its present step" in asyncio.run(one.watch.save_now("cli pid 7"))
    assert read(tmp_path / FILE) == BeforeEnd(NOW + 600, 90.0, 1)
    assert one.hub.said[-1] == (
        "info",
        "trainer saves a checkpoint at the end of its present step, as cli pid 7 asked",
    )
    next_backend = Watched(tmp_path, monkeypatch, None)
    next_backend.look()
    assert read(tmp_path / FILE) == BeforeEnd(None, 90.0, 1)
    asyncio.run(next_backend.watch.save_now("cli pid 8"))
    assert read(tmp_path / FILE).asked == 2, "it goes on with the number of the one before it"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"services": ()}, "the run has no trainer"),
        ({"script": "x"}, "its trainer is that of a launch script"),
    ],
)
def test_a_checkpoint_that_nobody_can_save_is_refused(
    changes: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path, monkeypatch, None)
    vars(one.hub.plan).update(changes)
    with pytest.raises(CommandError, match=f"^no checkpoint can be asked for: {why}$"):
        asyncio.run(one.watch.save_now("cli pid 7"))
    assert one.hub.said == [("warning", f"cli pid 7 asked for a checkpoint, but {why}")]
    assert not (tmp_path / FILE).exists()


def test_a_file_that_cannot_be_written_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watched(tmp_path / "gone", monkeypatch, LATER)
    one.look()
    assert one.hub.unwritten == [f"{FILE}: No such file or directory"]
    (tmp_path / "gone").mkdir()
    one.look(5.0)
    assert read(tmp_path / "gone" / FILE).ends_at == NOW + 600
