"""``compare``: runs side by side, as their files tell them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kit.ended_runs import FALLING, a_run
from msgspec.structs import replace

from liverl.diagnose.report import past_alerts, report
from liverl.model import Cause, Event, Snapshot, StepTime, Symptom
from liverl.observe.metrics.parting import Parting
from liverl.observe.metrics.series import Series
from liverl.offline.compare import seconds_of
from liverl.rundir.layout import RunDir
from liverl.snapshot_json import encode_snapshot
from liverl_tui.cli.main import run
from liverl_tui.screens.runs import oldest_first
from liverl_tui.text.comparison import reward_words, shared_width, weight

OF_VERL = ("run.topology=verl", "run.engine=vllm", "trainer.kind=verl", "model.model_path=/models/mine")


def compared(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = run(["compare", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_default_that_the_other_run_names_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both trained with 0.3, and "algorithm.learning_rate  0.3  null" was said to differ."""
    one = a_run(tmp_path, "one", sets=("algorithm.learning_rate=0.3",))
    other = a_run(tmp_path, "other")
    _, out, _ = compared(capsys, one, other)
    assert "the configurations are the same in every key" in out
    assert "algorithm.learning_rate is 0.3 in all of them: some name it, in others it is the default" in out
    assert "null" not in out and "differ in" not in out
    _, out, _ = compared(capsys, one, other, "--json")
    (told,) = json.loads(out)["config"]
    assert told == {"key": "algorithm.learning_rate", "values": [0.3, None], "inert": False}, (
        "as it is written"
    )
    third = a_run(tmp_path, "third", sets=("algorithm.learning_rate=2.5",))
    _, out, _ = compared(capsys, one, other, third)
    assert "differ in 1 key:" in out
    (row,) = [line.split() for line in out.splitlines() if "learning_rate" in line]
    assert row == ["algorithm.learning_rate", "0.3", "0.3", "(default)", "2.5"]


def test_defaults_of_two_trainers_are_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both configurations have null, and one run trained with 0.3, the other with 1e-6."""
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", sets=OF_VERL)
    _, out, _ = compared(capsys, one, other)
    rows = [line.split() for line in out.splitlines()]
    assert ["algorithm.learning_rate", "0.3", "(default)", "1e-06", "(default)"] in rows


def test_what_differs_is_told_and_what_does_not_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    oom = Cause("trainer", "GPU 0 out of memory", 5.0, id="cuda-oom")
    one = a_run(tmp_path, "one", alerts=("reward_flat", "trials_slow"))
    other = a_run(
        tmp_path, "other", FALLING, ("algorithm.learning_rate=2.5", "run.seed=3"), ("reward_flat",), oom
    )
    code, out, _ = compared(capsys, one, other)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"A  exp/one  {one}"
    told = {line[:30].strip(): line[30:].split("  ") for line in lines if line}
    assert [word.strip() for word in told["reward, first -> last 3 steps"] if word.strip()] == [
        "0.250 -> 0.703",
        "0.250 -> 0.000",
    ]
    assert [word.strip() for word in told["duration of its last attempt"] if word.strip()] == [
        "1m00s",
        "1m00s",
    ]
    assert "the configurations differ in 2 keys:" in lines
    assert any(line.split() == ["algorithm.learning_rate", "0.3", "(default)", "2.5"] for line in lines)
    assert any(line.split() == ["run.seed", "0", "3"] for line in lines)
    assert "run.name" not in out, "it differs in each run"
    assert "reward below from step 5 on, by 0.531 on average" in [" ".join(line.split()) for line in lines], (
        out
    )
    assert "  only A, no fault: trials_slow began" in lines and "reward_flat" not in out
    assert lines[2] == "reward: A is higher than B from step 5 on, by 0.531 on average (12 common steps)", (
        "first, and in words"
    )
    assert "GPU 0 out of memory" in out and "not compared" not in out


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Parting(0, None, None, None), "A and B have no step in common"),
        (Parting(9, None, None, None), "A and B have the same in all 9 steps"),
        (Parting(1, None, None, None), "A and B have the same in the only step of both"),
        (
            Parting(12, 3, None, None),
            "A and B differ from step 3 on, and neither stays higher (12 common steps)",
        ),
        (
            Parting(12, 3, 4, -0.5),
            "A is higher than B from step 4 on, by 0.500 on average (12 common steps)",
        ),
        (
            Parting(30, 3, 4, 0.5),
            "B is higher than A from step 4 on, by 0.500 on average (30 common steps)",
        ),
        (
            Parting(11, 3, 4, -0.5),
            "too early to say which of A and B is higher: they have 11 common steps",
        ),
        (Parting(1, 1), "too early to say which of A and B is higher: they have 1 common step"),
    ],
)
def test_which_run_has_the_higher_reward_is_said(found: Parting, words: str) -> None:
    """Of six steps the lead of one run was told as if it were known, where the verdict on one run says nothing."""
    assert reward_words("B", found) == words


def test_alerts_are_named_as_they_were_told_and_good_ones_are_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", FALLING)
    told = [
        (
            "rewards_equal",
            "new",
            "info",
            "step 26 is solved: all rewards are 1. Every trial of step 26 …",
            {},
        ),
        ("rewards_equal", "cleared", "info", 'over after 0m30s: "step 26 is solved"', {}),
        ("r0", "new", "warning", "r0 does not answer: since 30 s", {"title": "r0 does not answer"}),
    ]
    events = [
        Event(seq, 110.0 + seq, "symptom", text, level, data={"id": name, "what": what, **more})  # type: ignore[arg-type]
        for seq, (name, what, level, text, more) in enumerate(told, 1)
    ]
    (one / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    _, out, _ = compared(capsys, one, other)
    begin = out.splitlines().index("alerts that only some of them had:")
    assert out.splitlines()[begin + 1 :] == [
        "  only A, warning: r0 does not answer",
        "  only A, no fault: step 26 is solved: all rewards are 1",
    ]


@pytest.mark.parametrize(
    ("needs", "width", "rooms"),
    [
        ([9, 60], 70, [9, 60]),  # a short column leaves its room to the long one
        ([9, 80], 70, [9, 61]),
        ([50, 50], 60, [30, 30]),
        ([80, 9, 80], 89, [40, 9, 40]),
        ([20, 20], 4, [8, 8]),
    ],
)
def test_columns_share_the_width(needs: list[int], width: int, rooms: list[int]) -> None:
    assert shared_width(needs, width) == rooms


def test_what_matters_is_compared_first() -> None:
    keys = [
        "environments.verl.python",
        "proxy.port",
        "training.lr",
        "run.engine",
        "model.model_path",
        "ray.head_port",
    ]
    assert sorted(keys, key=weight) == [
        "model.model_path", "training.lr", "environments.verl.python", "proxy.port", "ray.head_port", "run.engine",
    ]  # fmt: skip


def test_the_oldest_run_is_the_first_however_it_was_chosen() -> None:
    runs: Any = [SimpleNamespace(started_at=at) for at in (3.0, None, 1.0)]
    assert [run.started_at for run in oldest_first(runs)] == [1.0, 3.0, None]


def test_runs_that_are_alike_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = compared(capsys, a_run(tmp_path, "one"), a_run(tmp_path, "other"), "--json")
    told = json.loads(out)
    assert (told["config"], [curve["partings"][0]["differs"] for curve in told["curves"]]) == ([], [None])
    _, out, _ = compared(capsys, tmp_path / "exp" / "one", tmp_path / "exp" / "other")
    assert "the configurations are the same" in out and "the same (12 steps)" in out


@pytest.mark.parametrize(
    ("sets", "used", "idle"),
    [
        (("vllm.gen_tp=2",), (), ("vllm.gen_tp",)),
        (("vllm.gen_tp=2", "run.seed=3"), ("run.seed",), ("vllm.gen_tp",)),
        (("vllm.gen_tp=2", "vllm.dtype=half"), (), ("vllm.gen_tp", "vllm.dtype")),
        (("run.seed=3",), ("run.seed",), ()),
    ],
)
def test_keys_that_nothing_uses_are_folded(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sets: tuple[str, ...],
    used: tuple[str, ...],
    idle: tuple[str, ...],
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", sets=sets)
    _, out, _ = compared(capsys, one, other)
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("  run.", "  vllm."))] == [*used]
    line = next((line for line in out.splitlines() if "that none of these runs uses" in line), "")
    assert set(line.partition(": ")[2].split(", ")) - {""} == set(idle)
    assert ("the same in every key that any of these runs uses" in out) == (not used)
    _, out, _ = compared(capsys, one, other, "--json")
    assert {found["key"]: found["inert"] for found in json.loads(out)["config"]} == {
        **dict.fromkeys(used, False),
        **dict.fromkeys(idle, True),
    }


def test_what_is_not_known_is_a_dash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [a_run(tmp_path, "a"), a_run(tmp_path, "b", sets=("run.seed=3",)), a_run(tmp_path, "c", [])]
    (runs[2] / "config.yaml").unlink()
    _, out, _ = compared(capsys, *runs)
    assert any(line.split() == ["run.seed", "0", "3", "-"] for line in out.splitlines())
    assert any(line.startswith("model ") and line.split()[-1] == "-" for line in out.splitlines())
    assert "?" not in out


def test_what_cannot_be_read_is_named_and_no_good_news_is_made_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", [])
    (other / "config.yaml").unlink()
    code, out, _ = compared(capsys, one, other)
    assert code == 0
    assert "the configurations could not be compared" in out
    assert "the same" not in out
    assert "no metric is reported by two of them" in out
    assert "run B: not compared: its configuration: there is none in its directory" in out


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    for path, key in ((one, "k" * 20), (other, "q" * 20)):
        text = (path / "config.yaml").read_text()
        assert 'anthropic_api_key: ""' in text
        (path / "config.yaml").write_text(text.replace('anthropic_api_key: ""', f"anthropic_api_key: {key}"))
    _, out, _ = compared(capsys, one, other)
    assert "kkkk" not in out and "qqqq" not in out
    assert "the configurations are the same (keys and passwords are not compared)" in out


@pytest.mark.parametrize("names", [(), ("one",), ("one", "one"), tuple("abcdefg")])
def test_another_number_of_runs_is_refused(
    names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "exp" / name for name in names]
    for path in set(paths):
        a_run(tmp_path, path.name)
    code, _, err = compared(capsys, *paths)
    assert code == 2 and "two to 6 different runs" in err


@pytest.mark.parametrize("width", [60, 80, 200])
def test_six_runs_have_room(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    paths = [a_run(tmp_path, f"run{n}", sets=(f"run.seed={n}",)) for n in range(6)]
    _, out, _ = compared(capsys, *paths)
    table = out.split("\n\n", 1)[1].splitlines()
    assert all(letter in table[0] for letter in "ABCDEF")
    assert max(map(len, table)) <= max(width, 30 + 6 * 10)


def test_training_time_is_the_sum_of_what_steps_took() -> None:
    times, other = Series(), Series()
    for step, seconds in ((1, 10.0), (2, 12.0), (3, math.nan), (5, 8.0)):
        times.add(step, seconds)
    other.add(1, 0.5)
    sums = seconds_of({"timing_s/step": times, "critic/score/mean": other})
    assert sums is not None
    assert list(sums.steps) == [1, 2, 3, 5] and list(sums.values) == [10.0, 22.0, 22.0, 30.0]
    assert seconds_of({"critic/score/mean": other}) is None


def test_an_open_alert_has_the_numbers_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its count has grown since the event that told it: the report has the newest one, and so has the comparison."""
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other", FALLING)
    told = Event(
        1, 111.0, "symptom", "the tasks are solved: reward 1 for 5 steps. All are.", "info",
        data={"id": "solved", "what": "new", "title": "the tasks are solved: reward 1 for 5 steps"},
    )  # fmt: skip
    (one / "events.jsonl").write_bytes(msgspec.json.encode(told) + b"\n")
    state, result = RunDir(one).read_snapshot(), RunDir(one).read_result()
    assert state is not None and result is not None
    title = "the tasks are solved: reward 1 for 8 steps"
    open_one = Symptom("solved", "info", title, "All are.", "use harder tasks", since=111.0)
    state = msgspec.structs.replace(state, symptoms=(open_one,))
    (one / "snapshot.json").write_bytes(encode_snapshot(state))
    _, out, _ = compared(capsys, one, other)
    page = report(state, result, past_alerts([told], 100.0), ())
    assert f"  only A, no fault: {title}\n" in out and f"at the end: {title}" in page
    assert "for 5 steps" not in out


def with_step(path: Path, seconds: float, shares: dict[str, float]) -> Path:
    """The run with where the time of its newest steps went."""
    file = path / "snapshot.json"
    state = msgspec.json.decode(file.read_bytes(), type=Snapshot)
    now = replace(state, step_seconds=seconds, step_time=StepTime(10, seconds, shares))
    file.write_bytes(encode_snapshot(now))
    return path


def test_of_how_many_trials_the_mean_rewards_are_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = a_run(tmp_path, "one"), a_run(tmp_path, "other")
    assert "that were trained" not in compared(capsys, one, other)[1]
    counts = {"trained": 12, "zeroed": 0, "masked": 52, "dropped": 0}
    metrics = one / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for line in lines:
        line["data"] |= {f"liverl/endings/{word}": count for word, count in counts.items()}
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    out = compared(capsys, one, other)[1]
    (row,) = (line for line in out.splitlines() if "that were trained" in line)
    assert row.split("trained")[1].split() == ["36", "of", "192", "-"]


def test_which_part_of_a_step_takes_longer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run that was slow from its first step on, only the whole step was told: nothing grows within it."""
    one = with_step(a_run(tmp_path, "one"), 90.0, {"model": 0.6, "update": 0.3, "tool": 0.1, "verifier": 0.0})
    other = with_step(a_run(tmp_path, "other"), 340.0, {"tool": 0.75, "model": 0.16, "update": 0.09})
    _, out, _ = compared(capsys, one, other)
    lines = out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("a step, median"))
    assert [" ".join(line.split()) for line in lines[at : at + 5]] == [
        "a step, median of newest 10 90 s 5m40s",
        "of it tools 9.0 s 4m15s",
        "of it update 27 s 31 s",
        "of it the model 54 s 54 s",
        "duration of its last attempt 1m00s 1m00s",
    ], "the part that differs most first, and none that is small in both"
    _, out, _ = compared(capsys, one, other, "--json")
    first, second = (run["step_parts"] for run in json.loads(out)["runs"])
    assert first == {"model": 54.0, "update": 27.0, "tool": 9.0, "verifier": 0.0}
    assert second == {"tool": 255.0, "model": 54.4, "update": 30.6}


def test_rollouts_are_one_part_where_one_run_knows_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = with_step(a_run(tmp_path, "one"), 90.0, {"model": 0.6, "update": 0.3, "tool": 0.1})
    other = with_step(a_run(tmp_path, "other"), 340.0, {"generate": 0.9, "update": 0.06, "other": 0.04})
    third = a_run(tmp_path, "third")
    _, out, _ = compared(capsys, one, other, third)
    told = [" ".join(line.split()) for line in out.splitlines() if line.startswith("  of it")]
    assert told == ["of it rollouts 63 s 5m06s -", "of it the rest - 14 s -", "of it update 27 s 20 s -"]
