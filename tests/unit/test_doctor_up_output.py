"""What doctor says of the output of `liverl-tui up` itself, as batch jobs keep it. The outputs are of runs on an H200,
with real verl, vLLM, Ray and LiteLLM."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from liverl.causes.finding import Verdict
from liverl.model import Event, Level
from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_text
from liverl.offline.doctor.up_output import UNTOLD, apart, is_output, told
from liverl_tui.cli.plain import EventLines

DATA = Path(__file__).parents[1] / "data" / "up_output"
NAMES = ("done", "judge", "failed", "stopped", "stopped_early")
TIME_LIMIT = "slurmstepd: error: *** JOB 4711 ON n17 CANCELLED AT 2026-12-01T15:09:02 DUE TO TIME LIMIT ***\n"


def verdict(path: Path) -> Verdict:
    return examine([path]).verdict


@pytest.mark.parametrize(
    ("name", "cause", "alerts"),
    [
        ("done", "", []),
        (
            "judge",
            "",
            [
                "trials fail: RewardError",
                "trials are not trained with their reward",
                "no learning signal in step 4",
                "Most trials of 4 of 6 steps were not trained (45 of 64 of step 6)",
            ],
        ),
        ("failed", "trainer in step 5: GPU 0 out of memory in the weight sync", []),
        ("stopped", "", ["no trial starts"]),
        ("stopped_early", "", []),  # while a replica was PENDING_CREATION for a moment, as each is
    ],
)
def test_the_run_s_own_account_is_the_verdict(name: str, cause: str, alerts: list[str]) -> None:
    found = verdict(DATA / f"{name}.log")
    assert (found.cause.title if found.cause is not None else "").startswith(cause)
    assert bool(found.cause) == bool(cause)
    assert [one.title for one in found.symptoms] == alerts
    assert all(one.fix and one.evidence[0].offset is not None for one in found.explanations)


def test_a_failure_has_the_advice_that_the_run_gave() -> None:
    found = verdict(DATA / "failed.log").cause
    assert found is not None
    assert found.cause.startswith("Another process had most of the memory of this GPU: process 15488 held")
    assert found.fix.startswith("See what process 15488 is (ps -fp 15488)") and "--set training" in found.fix
    assert "its run is in /tmp/d/neighbour/" in as_text(examine([DATA / "failed.log"]))


@pytest.mark.parametrize("name", NAMES)
def test_an_output_that_stops_anywhere_blames_nobody(name: str, tmp_path: Path) -> None:
    """It goes on, or somebody killed the command: then it does not say how the run ended, and that is said."""
    lines = (DATA / f"{name}.log").read_text().splitlines(keepends=True)
    for count in range(5, len(lines) - 3, 7):
        path = tmp_path / f"{count}.log"
        path.write_text("".join(lines[:count]))
        found = examine([path])
        assert found.verdict.cause is None
        assert UNTOLD in [one.id for one in found.notes]
        if not found.verdict.symptoms:
            assert "; how the run ended is not told (see the notes)" in as_text(found)


def test_what_others_wrote_into_the_same_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    output = (DATA / "stopped_early.log").read_text()
    path.write_text("Loading cuda/12.8\n" + output + TIME_LIMIT)
    found = verdict(path).cause
    assert found is not None and "time limit" in found.title.lower()
    assert found.evidence[0].offset == path.read_bytes().index(b"slurmstepd")


@pytest.mark.parametrize(
    "prefix",
    [
        "0: ",
        "train-1  | ",
        "[pod/train-0/main] ",
        "2026-12-01T15:09:02.123456789Z stdout F ",
        "[1,0]<stdout>:",
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_collector_s_prefix_changes_nothing(name: str, prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "".join(prefix + line for line in (DATA / f"{name}.log").read_text().splitlines(keepends=True))
    )
    plain, found = verdict(DATA / f"{name}.log"), verdict(path)
    assert [one.title for one in found.explanations] == [one.title for one in plain.explanations]


def test_an_error_of_others_beside_a_run_that_is_done_is_told(tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    lost = 'Traceback (most recent call last):\n  File "/job/copy.py", line 3, in <module>\nOSError: no such share\n'
    path.write_text((DATA / "done.log").read_text() + lost)
    found = verdict(path).cause
    assert found is not None and "no such share" in found.title


def test_of_several_outputs_what_others_wrote_into_the_older_ones_is_not_judged(tmp_path: Path) -> None:
    for name, text, at in (("old", TIME_LIMIT, 1_796_000_000), ("new", "", 1_796_140_000)):
        path = tmp_path / f"{name}.out"
        path.write_text((DATA / "done.log").read_text() + text)
        os.utime(path, (at, at))
    found = examine([tmp_path / "old.out", tmp_path / "new.out"])
    assert found.verdict == Verdict()
    assert [one.path[-7:] for one in found.files if "of an earlier run, not judged" in one.what] == [
        "old.out"
    ]


def test_of_several_attempts_in_one_file_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    failed, done = ((DATA / f"{name}.log").read_text() for name in ("failed", "done"))
    path.write_text(failed + done)
    assert verdict(path) == Verdict()
    path.write_text(done + failed)
    assert verdict(path).cause is not None


EVENTS: list[tuple[str | None, Level, str, str]] = [
    (None, "info", "run a/b started in /runs/a/b", ""),
    ("r0", "warning", "slow: r0 takes long", "look at r0"),
    ("r0", "info", 'resolved after 0m50s: "slow"', ""),
    ("r1", "warning", "late: it is not there; nor is r2", "wait"),
    ("r1", "warning", "r1: deaf. It does not answer", "call it"),
    ("trainer", "error", "trainer has failed: boom. It was the bomb.", "defuse it"),
    (None, "error", "failed: trainer in step 3: boom", ""),
]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_lines_of_a_terminal_are_read_as_those_of_a_file(terminal: bool, colour: bool) -> None:
    out = io.StringIO()
    lines = EventLines(out)
    lines.terminal, lines.colour = terminal, colour
    for number, (service, level, text, fix) in enumerate(EVENTS):
        data = {"fix": fix} if fix else {}
        lines.event(Event(number, 1e9 + number, "symptom", text, level, service, data))
    text = out.getvalue().encode()
    assert is_output(text)
    found = told(apart(text)[1], "x.log")
    assert found.state == "failed" and found.folder == "/runs/a/b"
    assert found.cause is not None
    assert (found.cause.title, found.cause.fix) == ("trainer in step 3: boom", "defuse it")
    assert [(one.title, one.cause, one.fix) for one in found.symptoms] == [
        ("late", "it is not there; nor is r2", "wait"),
        ("r1: deaf", "It does not answer", "call it"),
    ]
    assert not apart(text)[0].strip()


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("done: 6 steps", "done"),
        ("ended (exit 0); no training step was seen", "done"),
        ("failed", "failed"),
        ("failed, but some processes could not be killed: ray (7)", "failed"),
        ("stopped by SIGINT to up (pid 7)", "stopped"),
        ("stopped: the time of its job was over", "stopped"),
        ("failed to write history.jsonl: No space left on device", ""),
        ("training has completed; stopping the rest", ""),
        ("stopping services in dependency order", ""),
    ],
)
def test_what_ends_a_run(text: str, state: str) -> None:
    begin = b"2026-12-01 15:00:00  run         run a/b started in /runs/a/b\n"
    line = f"2026-12-01 15:07:46  run         {text}\n".encode()
    assert told(apart(begin + line)[1], "x.log").state == state
    late = b"2026-12-01 15:07:47  run         warning: report.md was not written\n"
    assert told(apart(begin + line + late)[1], "x.log").state == state
    assert told(apart(begin + line + 3 * late)[1], "x.log").state == "", "it went on"


def test_lines_of_others_stay_at_their_bytes() -> None:
    data = (DATA / "done.log").read_bytes()
    mixed = data.replace(b"\n", b"\nTraceback of others\r\n", 30)
    left, _ = apart(mixed)
    assert len(left) == len(mixed) and left.count(b"Traceback of others") == 30
    assert left.index(b"Traceback") == mixed.index(b"Traceback")
    assert set(left.replace(b"Traceback of others\r", b"")) <= set(b" \n")


@pytest.mark.parametrize("name", NAMES)
def test_so_is_the_output_of_attach_which_begins_later(name: str, tmp_path: Path) -> None:
    path = tmp_path / "attached.log"
    lines = (DATA / f"{name}.log").read_text().splitlines(keepends=True)
    begin = "2026-12-01 14:20:00  liverl-tui  attached to run a/b in /runs/a/b\n"
    path.write_text("".join([begin, *lines[20:]]))
    assert verdict(path).cause is None or name == "failed"
    assert "output of liverl-tui" in as_text(examine([path]))


@pytest.mark.parametrize(
    "text", [b"", b"2026-12-01 15:07:46  trainer     step 1/6: reward 0.3\n", b"ERROR run started in /x\n"]
)
def test_other_logs_are_none(text: bytes) -> None:
    assert not is_output(text)
