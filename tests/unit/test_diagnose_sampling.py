"""A launch script's trials that ask for another temperature or top_p than the trainer assumes: how that is read from
their records, what fires the rule, and what nearly does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.screens import NOW, snapshot, trial
from kit.symptoms import proof
from kit.trial_folders import FILE, call, lines
from msgspec.structs import replace

from liverl.diagnose.catalogue.rules import FILE_RULES
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import Symptom, TrialHead, TrialsStatus
from liverl.observe.trials.records import parse_turn
from liverl.observe.trials.scanner import TrialScanner
from liverl.observe.trials.script_sampling import ScriptSampling, script_sampling
from liverl.observe.trials.trial import MOST_VALUES

ONE = {"temperature": 1.0, "top_p": 1.0}
MEANT = ScriptSampling(training=ONE, validation={"temperature": 0.0, "top_p": 1.0})


def fired(*heads: TrialHead, meant: ScriptSampling | None = MEANT, **fields: Any) -> list[Symptom]:
    (look,) = (rule.look for rule in FILE_RULES if rule.look.__name__ == "sampled_otherwise")
    now = snapshot(trials=TrialsStatus(newest=heads), **{"started_at": NOW - 600, **fields})
    return [
        found for found in look(Window(now, None, RunContext(sampling=meant))) if isinstance(found, Symptom)
    ]


def asking(index: int = 0, step: int | None = 7, **values: float | tuple[float, ...]) -> TrialHead:
    asked = {f"{name}s": value if isinstance(value, tuple) else (value,) for name, value in values.items()}
    return replace(trial(index, **asked), step=step)


# --- the rule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words", "title"),
    [
        (
            {"temperature": 0.0},
            "temperature 0, but algorithm.temperature is 1 (val_temperature 0)",
            "temperature",
        ),
        ({"temperature": (0.0, 1.0)}, "temperature 0, but", "temperature"),  # one of its requests is enough
        ({"temperature": 0.7}, "temperature 0.7, but", "temperature"),
        ({"temperature": 1.0001}, "temperature 1.0001, but", "temperature"),
        ({"top_p": 0.9}, "top_p 0.9, but algorithm.top_p is 1: ", "top_p"),
        ({"temperature": 1.0, "top_p": 0.9}, "top_p 0.9, but", "top_p"),
        ({"temperature": 0.2, "top_p": 0.9}, "temperature 0.2 and top_p 0.9, but", "temperature and top_p"),
    ],
)
def test_another_value_fires(asked: dict[str, Any], words: str, title: str) -> None:
    (found,) = fired(asking(0, **asked), asking(1), asking(2, temperature=1.0))
    assert found.severity == "warning" and found.title == f"trials ask for another {title}"
    assert len(found.title) <= 60
    assert found.cause.startswith(f"1 of 2 recorded trials asked for {words}")
    assert found.since == NOW


@pytest.mark.parametrize(
    "asked",
    [
        {},  # the engine's default: what that is, is not known
        {"temperature": 1.0},
        {"temperature": 1.0 + 1e-9, "top_p": 1},
        {"temperature": (1.0,), "top_p": (1.0,)},
    ],
)
def test_the_trainers_values_do_not(asked: dict[str, Any]) -> None:
    assert fired(asking(0, **asked)) == []


@pytest.mark.parametrize(("heat", "fires"), [(0.0, False), (1.0, False), (0.5, True)])
def test_a_trial_without_a_step_may_be_one_of_a_validation(heat: float, fires: bool) -> None:
    assert bool(fired(asking(0, step=None, temperature=heat))) is fires


def test_only_in_runs_whose_agents_nothing_of_ours_holds_to_it() -> None:
    assert fired(asking(0, temperature=0.0), meant=None) == []
    assert fired(asking(0, temperature=0.0), meant=ScriptSampling()) == [], "there is nothing to compare with"


def test_trials_of_earlier_attempts_do_not_count() -> None:
    old = trial(0, temperatures=(0.0,), updated_at=NOW - 700)
    again = trial(1, temperatures=(0.0,), earlier=True)
    assert fired(old, again) == []
    (found,) = fired(old, again, asking(2, temperature=0.0))
    assert found.cause.startswith("1 of 1 recorded trials ")


def test_the_trials_are_named_with_what_they_asked_for() -> None:
    (found,) = fired(*(asking(n, temperature=(0.1, 0.2), top_p=0.5) for n in range(9)))
    assert found.cause.startswith(
        "9 of 9 recorded trials asked for temperature 0.1 or 0.2 and top_p 0.5, but "
    )
    assert len(proof(found)) == 8
    assert proof(found)[0] == "trials/step_0007/trial-000: temperature 0.1 and 0.2, top_p 0.5"


# --- what the records say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        ({"temperature": 0.2, "top_p": 1, "messages": []}, {"temperature": 0.2, "top_p": 1.0}),
        (
            {"messages": [{"role": "user", "content": '"temperature": 7'}], "temperature": 0},
            {"temperature": 0.0},
        ),
        ({"extra": {"temperature": 7}, "messages": []}, {}),
        ({"temperature": None, "top_p": "0.5"}, {}),
        ({"temperature": True, "top_p": [0.5]}, {}),
        ({"temperature": 10**400}, {}),
        ("unreadable", {}),
        (None, {}),
        ([1], {}),
        (3, {}),
        (True, {}),
    ],
)
def test_the_parameters_in_a_record(request_body: Any, expected: dict[str, float]) -> None:
    turn = parse_turn(json.dumps(call(request_body=request_body)).encode())
    assert turn is not None and turn.success and turn.finish_reason == "stop"
    assert turn.sampling == expected


def test_a_trial_has_each_value_once(tmp_path: Path) -> None:
    folder = tmp_path / "trials" / "step_0001" / "a"
    folder.mkdir(parents=True)
    heats = [0.5, 1.0, 0.5, 0.0]
    asked = [call(request_body={"temperature": heat, "messages": []}) for heat in heats]
    failed = call(success=False, response_body=None, request_body={"top_p": 0.9, "messages": []})
    (folder / FILE).write_text(lines(*asked, failed, call()))
    (head,) = read(tmp_path)
    assert (head.temperatures, head.top_ps) == ((0.0, 0.5, 1.0), (0.9,))
    hash(head)  # lists of trials remember their rows by it


def test_an_agent_that_asks_for_any_number_of_values_fills_no_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "trials" / "step_0001" / "a"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(lines(*(call(request_body={"temperature": n / 100}) for n in range(50))))
    (head,) = read(tmp_path)
    assert len(head.temperatures) == MOST_VALUES


def read(run_dir: Path) -> tuple[TrialHead, ...]:
    return TrialScanner(run_dir).scan().newest


# --- what the configuration says --------------------------------------------------------------------------------------

ALGORITHM = "{temperature: 0.9, top_p: 0.95, val_temperature: 0, val_top_p: 1.0}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"trainer: {{kind: command}}\nalgorithm: {ALGORITHM}",
            ScriptSampling({"temperature": 0.9, "top_p": 0.95}, {"temperature": 0.0, "top_p": 1.0}),
        ),
        ("trainer: {kind: command}\nalgorithm: {temperature: hot, top_p: true}", ScriptSampling()),
        (f"trainer: {{kind: verl}}\nalgorithm: {ALGORITHM}", None),
        (f"trainer: {{kind: embedded}}\nalgorithm: {ALGORITHM}", None),
        ("trainer: {kind: command}", None),
        ("trainer: command", None),
        ("[" * 5000, None),
        (": :\n\t- x", None),
        ("", None),
    ],
)
def test_the_parameters_that_a_launch_script_trains_with(
    tmp_path: Path, text: str, expected: ScriptSampling | None
) -> None:
    assert script_sampling(tmp_path) is None
    (tmp_path / "config.yaml").write_text(text)
    assert script_sampling(tmp_path) == expected
