"""The report of an attempt that has ended."""

from __future__ import annotations

from typing import Any

import msgspec
from kit.screens import snapshot as sample

from liverl.diagnose.report import MOST_ALERTS, RESUMES, files, past_alerts, report, resumed_words
from liverl.model import Cause, ConfigChange, Event, Evidence, Result, Rewards, Symptom

START = 1_700_000_000.0


def alert(
    seq: int, what: str, name: str = "disk_low", at: float = START, text: str = "the disk is full"
) -> Event:
    return Event(seq, at + seq, "symptom", text, "warning", data={"id": name, "what": what})


def result(**fields: Any) -> Result:
    known: dict[str, Any] = {
        "state": "failed",
        "exit_code": 1,
        "cause": Cause("trainer", "ValueError: x", START, "attempt_002/logs/trainer.1.log", 70),
        "steps": 4,
        "started_at": START,
        "ended_at": START + 3725,
        "attempt": 2,
        "summary": "failed: ValueError: x",
        "resume": "liverl-tui up --resume p/n",
    }
    return Result(**{**known, **fields})


def page(ended: Result | None = None, alerts: tuple[Event, ...] = (), **state: Any) -> str:
    state = {"symptoms": (), "changes": (), "total_steps": 9, **state}
    ended = ended or result()
    return report(sample(**state), ended, past_alerts(alerts, START), files(ended.attempt))


def test_it_says_how_far_the_run_came_and_why_it_ended() -> None:
    text = page()
    for line in (
        "- state: failed, exit code 1",
        "- steps: 4 of 9",
        "ValueError: x",
        "Log: `attempt_002/logs/trainer.1.log`, at byte 70",
        "- go on with: `liverl-tui up --resume p/n`",
    ):
        assert f"{line}\n" in text
    assert "1h02m\n" in text
    assert text.startswith("# ") and "attempt 2: failed: ValueError: x\n" in text


def test_a_run_that_is_done_needs_no_cause() -> None:
    done = result(state="done", exit_code=0, cause=None, resume=None, summary="done: 4 steps")
    assert "## Why" not in page(done) and "go on" not in page(done)
    assert "No cause was found." in page(result(cause=None))


def test_no_two_empty_lines_follow_each_other() -> None:
    stopped = result(state="stopped", exit_code=5, cause=Cause(None, "stopped by me", START))
    for text in (page(), page(stopped), page(result(cause=None)), page(stopped, (alert(1, "new"),))):
        assert "\n\n\n" not in text


def test_alerts_have_the_times_of_their_begin_and_end() -> None:
    events = (
        alert(-5, "new", text="of the attempt before"),
        alert(1, "new", text="first"),
        alert(2, "worse", text="worse"),
        alert(3, "new", "other", text="second"),
        alert(4, "cleared"),
        alert(5, "new", text="again"),
        Event(6, START + 6, "note", "no alert"),
    )
    found = [(a.id, a.text, a.began - START, a.ended and a.ended - START) for a in past_alerts(events, START)]
    assert found == [
        ("disk_low", "first", 1, 4),
        ("other", "second", 3, None),
        ("disk_low", "again", 5, None),
    ]


def test_an_alert_that_is_open_at_the_end_says_what_to_do() -> None:
    symptom = Symptom(
        "disk_low", "critical", "full", "it is full", "delete\nsomething", (Evidence("3 GB left"),), START,
        patch={"training.save_freq": "9"},
    )  # fmt: skip
    text = page(alerts=(alert(1, "new"),), symptoms=(symptom,))
    assert (
        "  - what to do: delete something\n  - change: `training.save_freq: 9`\n  - seen: 3 GB left\n" in text
    )
    note = Event(1, START + 1, "symptom", "step 26 is solved", data={"id": "disk_low", "what": "new"})
    assert "over at" in page(alerts=(note, alert(2, "cleared"))), "nothing was wrong, so nothing is resolved"
    ended = page(alerts=(alert(1, "new"), alert(2, "cleared")), symptoms=(symptom,))
    assert "what to do" not in ended and "resolved at" in ended


def test_an_alert_that_goes_with_the_end_of_the_run_was_not_resolved() -> None:
    """Nothing watches a trainer that is being stopped because it hung."""
    began = Event(
        1,
        START + 1,
        "symptom",
        "it hangs",
        "warning",
        data={"id": "hang", "what": "new", "fix": "see with py-spy"},
    )
    stop = Event(2, START + 2, "stop", "stop requested by me")
    text = page(result(state="stopped"), alerts=(began, stop, alert(3, "cleared", "hang")))
    assert (
        "resolved" not in text and ", ended with the run: it hangs\n  - what to do: see with py-spy\n" in text
    )
    assert "resolved at" in page(alerts=(began, alert(3, "cleared", "hang"), stop))
    with_run = Event(2, START + 2, "symptom", "x", data={"id": "hang", "what": "cleared", "with_run": True})
    text = page(alerts=(began, with_run, stop))
    assert "resolved" not in text and ", ended with the run: it hangs\n" in text


def test_an_alert_that_lasts_is_told_as_it_is_now() -> None:
    text = page(
        alerts=(alert(1, "new", "equal", text="no signal in step 1. All are 0"),),
        symptoms=(Symptom("equal", "warning", "no signal in step 4", "all are 1", "look", since=START),),
    )
    began, later = next(
        (a, b) for a, b in zip(*[text.splitlines()[n:] for n in (0, 1)], strict=False) if "step 1" in a
    )
    assert began.endswith(":21: no signal in step 1. All are 0"), "what was told at the time that is shown"
    assert later == "  - at the end: no signal in step 4: all are 1"
    worse = page(alerts=(alert(1, "new", text="5 of 32"), alert(2, "worse", text="32 of 32")))
    assert ":21: 5 of 32\n  - at " in worse and ":22: 32 of 32\n" in worse


def test_what_the_cause_says_is_not_told_twice() -> None:
    name = "service_failed:trainer"
    fallen = Symptom(name, "critical", "trainer has failed", "ValueError: x", "mend x", since=START)
    text = page(
        result(cause=Cause("trainer", "ValueError: x", START, fix="mend x")),
        (alert(1, "new", name),),
        symptoms=(fallen,),
    )
    assert text.count("ValueError: x") == 2, "in the head, and as the cause"
    assert text.count("mend x") == 1 and ": trainer has failed, as told above\n" in text


def test_what_goes_on_with_the_run_mends_its_cause() -> None:
    cause = Cause("trainer", "no tokens", START, patch={"model.tool_parser": "hermes"})
    resumed = "- go on with: `liverl-tui up --resume p/n --set model.tool_parser=hermes`\n"
    assert resumed in page(result(cause=cause))
    guessed = page(result(cause=msgspec.structs.replace(cause, guess=True)))
    assert "- go on with: `liverl-tui up --resume p/n`\n" in guessed


def test_it_says_what_ran_and_what_was_learned() -> None:
    settings = {"model.model_path": "/models/m", "run.engine": "vllm", "trainer.kind": "verl", "x": "y"}
    text = report(sample(rewards=Rewards(2, 0.1, 0.2, (0.1, 0.2))), result(), [], {"checkpoints"}, settings)
    assert "- model: /models/m, engine: vllm, trainer: verl\n" in text
    assert "- mean reward of 2 steps: 0.200\n" in text, "two steps have no first and last three"
    assert "- `checkpoints`: what `--resume` goes on from\n" in text
    learned = report(sample(rewards=Rewards(6, 0.1, 0.2, (0.1, 0.2))), result(), [], ())
    assert "- mean reward: 0.100 in the first three steps, 0.200 in the last three\n" in learned


def test_advice_is_whole_and_a_quoted_line_ends_with_a_whole_word() -> None:
    """The check of a killed trainer ended in ``/sys/fs/…``: nobody could run it."""
    check = "grep -s '^oom_kill ' " + " ".join(
        f"/sys/fs/cgroup/{'x' * 40}/{n}/memory.events" for n in range(9)
    )
    cause = Cause("trainer", "killed", START, fix=f"Check: {check}", evidence=(Evidence(f"saw {check}"),))
    text = page(result(cause=cause))
    assert f"- what to do: Check: {check}\n" in text
    seen = next(line for line in text.splitlines() if line.startswith("- seen: "))
    assert seen.endswith("/memory.events …") and len(seen) < 320


def test_many_alerts_are_counted() -> None:
    events = tuple(alert(i, "new", f"n{i}", text="x" * 1000) for i in range(MOST_ALERTS + 3))
    text = page(alerts=events)
    assert "- and 3 more: `liverl-tui events" in text
    assert max(map(len, text.splitlines())) < 400


def test_it_names_the_files_that_exist_and_what_was_changed() -> None:
    change = ConfigChange(2, "training.total_steps", 20, 8, "--set")
    state = sample(symptoms=(), changes=(change, msgspec.structs.replace(change, attempt=1, after=7)))
    text = report(state, result(), [], {"events.jsonl"})
    assert "- `events.jsonl`: what happened, a line each\n" in text and "litellm" not in text
    assert "- changed for this attempt: training.total_steps: 20 -> 8\n" in text and "-> 7" not in text


def test_it_says_from_which_step_a_further_attempt_trained() -> None:
    events = [
        Event(1, START, RESUMES, "no checkpoint: training starts at step 1", data={"attempt": 2}),
        Event(2, START, RESUMES, "training goes on from the checkpoint of step 4", data={"attempt": 3}),
    ]
    assert resumed_words(events, 1) == ""
    words = resumed_words(events, 2)
    assert words == "no checkpoint: training starts at step 1"
    told = report(sample(symptoms=()), result(), (), (), resumed=words)
    assert "\n- no checkpoint: training starts at step 1\n" in told


def test_it_says_what_the_replicas_are() -> None:
    settings = {"run.engine": "vllm"}
    assert "engine: vllm," in report(sample(symptoms=()), result(), (), (), settings)
    told = report(sample(symptoms=()), result(), (), (), settings, serves="a small one on CPUs")
    assert "engine: a small one on CPUs," in told
