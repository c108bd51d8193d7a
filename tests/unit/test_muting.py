"""Alerts that the user has muted: known by their ids, told once, listed, and no alerts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.screens import NOW, snapshot
from msgspec.structs import replace

import liverl.diagnose.catalogue
from liverl.config import load_config
from liverl.config.changes import on_change
from liverl.diagnose.catalogue.alert_ids import kinds, unknown
from liverl.diagnose.muting import muted_words, mutes
from liverl.diagnose.report import past_alerts
from liverl.diagnose.tracker import Diagnosis, Rule, RunContext, SymptomChange, Window, words
from liverl.model import Event, Symptom
from liverl.snapshot_json import decode_snapshot, encode_snapshot
from liverl_tui.cli.status_table import render
from liverl_tui.text.facts import plain_facts

ROOT = Path(__file__).parents[2]
BAD = Symptom("bad:r1", "critical", "r1 is bad", "because", "mend it")
WORSE = Symptom("worse", "warning", "it is worse", "because", "mend it")


@pytest.mark.parametrize(
    ("mute", "alert", "muted"),
    [
        ((), "bad", False),
        (("bad",), "bad", True),
        (("bad",), "bad:r1", True),
        (("bad",), "badly", False),
        (("bad:r1",), "bad:r1", True),
        (("bad:r1",), "bad:r10", False),
        (("bad:r1",), "bad", False),
        (("log:x",), "log:x:trainer", True),
        (("log",), "log:x:trainer", True),
        (("other", "bad"), "bad:r1", True),
    ],
)
def test_an_id_mutes_its_kind_or_itself(mute: tuple[str, ...], alert: str, muted: bool) -> None:
    assert mutes(mute, alert) == muted


# --- over time ----------------------------------------------------------------------------------------------


class Looks:
    """A diagnosis of one rule that finds what the test says."""

    def __init__(self, told: tuple[str, ...] = (), hold: float = 0.0) -> None:
        self._found: tuple[Symptom, ...] = ()
        self.diagnosis = Diagnosis((Rule(self._look, hold, 10.0),), (), told)

    def _look(self, window: Window) -> Iterator[Symptom]:
        yield from self._found

    def at(self, seconds: float, *found: Symptom, mute: tuple[str, ...] = ("bad",)) -> list[tuple[str, str]]:
        self._found = found
        news = self.diagnosis.update(snapshot(at=NOW + seconds), RunContext(mute=mute))
        return [(one.what, one.symptom.id) for one in news]

    @property
    def lists(self) -> tuple[list[str], list[str]]:
        return [s.id for s in self.diagnosis.symptoms], [s.id for s in self.diagnosis.muted]


def test_a_muted_alert_is_told_once_and_is_in_the_other_list() -> None:
    looks = Looks()
    assert looks.at(0, BAD, WORSE) == [("muted", "bad:r1"), ("new", "worse")]
    assert looks.lists == (["worse"], ["bad:r1"])
    assert looks.at(2, BAD, WORSE) == [] and not looks.diagnosis.holding
    assert looks.at(20, WORSE) == [], "its end is not told"
    assert looks.lists == (["worse"], [])
    assert looks.at(40, BAD, WORSE) == [], "nor is that it comes again"
    assert looks.lists == (["worse"], ["bad:r1"])


def test_what_lasts_for_less_than_its_time_is_not_told_as_muted() -> None:
    looks = Looks(hold=10.0)
    assert looks.at(0, BAD) == [] and looks.lists == ([], []) and looks.diagnosis.holding
    assert looks.at(10, BAD) == [("muted", "bad:r1")]


def test_a_later_backend_does_not_tell_it_again() -> None:
    assert Looks(told=("bad:r1",)).at(0, BAD) == []


def test_it_can_be_muted_and_told_again_while_it_lasts() -> None:
    looks = Looks()
    assert looks.at(0, BAD, mute=()) == [("new", "bad:r1")]
    assert looks.at(2, BAD) == [("muted", "bad:r1")] and looks.lists == ([], ["bad:r1"])
    assert looks.at(4, BAD, mute=()) == [("new", "bad:r1")] and looks.lists == (["bad:r1"], [])
    assert looks.at(20, mute=()) == [("cleared", "bad:r1")]


def test_the_report_of_the_attempt_does_not_say_that_a_muted_alert_went_on() -> None:
    def event(at: float, kind: str, what: str) -> Event:
        return Event(seq=int(at), at=at, kind=kind, text="r1 is bad", data={"id": "bad:r1", "what": what})

    (past,) = past_alerts([event(1, "symptom", "new"), event(5, "symptom_muted", "muted")], 0.0)
    assert past.ended == 5
    assert past_alerts([event(1, "symptom_muted", "muted")], 0.0) == []


def test_the_sentence_of_the_event() -> None:
    text, level = words(SymptomChange("muted", replace(BAD, title="r1 is bad: very")), NOW)
    assert (text, level) == ("muted by diagnosis.mute: bad:r1: r1 is bad", "info")


# --- where it is seen ---------------------------------------------------------------------------------------


def test_status_and_plain_mode_name_what_is_muted() -> None:
    state = snapshot(symptoms=(WORSE,), muted=(BAD,))
    line = "1 alert, by diagnosis.mute: bad:r1"
    assert f"muted     {line}" in render(state) and f"muted: {line}" in plain_facts(state)
    assert muted_words(()) is None and "muted" not in render(snapshot())
    assert muted_words((BAD, WORSE)) == "2 alerts, by diagnosis.mute: bad:r1, worse"
    assert decode_snapshot(encode_snapshot(state)).muted == (BAD,)


# --- which ids there are ------------------------------------------------------------------------------------


def literal_ids() -> set[str]:
    """The beginnings of all ids that the modules of rules write: ``id="kind"`` and ``id=f"kind:{name}"``."""
    found = set()
    for file in Path(liverl.diagnose.catalogue.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "id":
                value = node.value.values[0] if isinstance(node.value, ast.JoinedStr) else node.value
                if isinstance(value, ast.Constant):
                    found.add(value.value.partition(":")[0])
    return found


def test_each_rule_says_which_ids_its_alerts_have() -> None:
    known, written = kinds(), literal_ids()
    assert written - {"responses_", "service_", "rows_", "pods_"} <= set(known)
    computed = {
        *("responses_*", "trainer_idle", "rollouter_idle"),
        "notify_failing",
        *("rows_zero_logprobs", "rows_mask_mismatch", "rows_unreadable"),
        *(
            "trainer_stalled",
            "run_failed",
            "service_backing_off",
            "disk_low",
            "replica_idle",
            "gpus_loaded_but_idle",
            "replica_missing",
        ),
        "ray-too-few-resources",
        *("pods_image_pull", "pods_config", "pods_unschedulable", "pods_crash", "pods_deadline"),
        *("pods_evicted", "pods_node_gone"),
    }
    assert set(known) - written == computed, "these are written with variables; each was looked up"
    assert len(known) == len(set(known)) >= 60


def test_the_documentation_lists_them() -> None:
    text = (ROOT / "docs/diagnosis.md").read_text()
    listed = set(re.findall(r"`([a-z_\-]+)`", text[text.index("The ids: ") :].partition(".\n")[0]))
    assert listed == {name for name in kinds() if name not in ("log", "responses_*")}


@pytest.mark.parametrize(
    ("alert", "hint"),
    [
        ("truncated_shar", "did you mean truncated_share?"),
        ("Truncated-Share", "did you mean truncated_share?"),
        ("replica-idle:replica-1", "did you mean replica_idle?"),
        ("log:nccl-watchdo", "did you mean log:nccl-watchdog?"),
        ("xyzzy", ""),
        ("", ""),
    ],
)
def test_an_unknown_id_is_named_with_the_nearest_one(alert: str, hint: str) -> None:
    assert list(unknown([alert])) == [(alert, hint)]


def test_known_ids_of_every_form() -> None:
    known = [
        "truncated_share",
        "replica_idle:replica-1",
        "log",
        "log:nccl-watchdog",
        "log:nccl-watchdog:trainer",
    ]
    assert list(unknown([*known, "responses_503", "responses_429:proxy", "disk_low:/data"])) == []


def test_the_key_is_checked_with_its_place_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("run: {name: n}\ndiagnosis:\n  mute: [truncated, reward_flat]\n")
    for command in (("plan",), ("up", "--no-ui", "--yes", "--run-root", tmp_path / "runs")):
        done = run_cli(*command, "--config", file)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        assert (
            f"{file}:3: diagnosis.mute: no alert is called 'truncated'; did you mean truncated_share?"
            in done.stderr
        )
        assert "reward_flat" not in done.stderr
    assert not (tmp_path / "runs").exists()


def test_plan_prints_what_is_muted(tmp_path: Path) -> None:
    done = run_cli("plan", "--name", "n", "--set", "diagnosis.mute=[truncated_share,responses_503]")
    assert done.returncode == 0 and "\nmuted      truncated_share, responses_503\n" in done.stdout


def test_the_key_is_changed_without_a_restart() -> None:
    assert on_change("diagnosis.mute").words == "at once"
    assert load_config(sets=["diagnosis.mute=[a,b]"], env={}).config.diagnosis.mute == ("a", "b")
    assert load_config(env={}).config.diagnosis.mute == ()
