"""What a trial's verifier said: files of several forms, bad ones among them, and who reads which of them first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from liverl.agents.checks import Check, write_checks
from liverl.agents.tasks import TASKS, checks, reward_of
from liverl.observe.trials import verifier
from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.trajectory import TrajectoryReader
from liverl.observe.trials.verifier import (
    LONGEST_TEXT,
    MOST_CHECKS,
    OUTPUT_LINES,
    VerifierReport,
    parse_checks,
    parse_ctrf,
    parse_pytest,
    report_of,
    reward_check,
    with_reward,
)
from liverl_tui.text.reward_lines import UNKNOWN, counted, report_lines, reward_title
from liverl_tui.widgets.trajectory.document import reward_blocks

OURS = [
    {"what": "a", "passed": False, "expected": 3, "got": None},
    {"what": "b", "passed": True, "note": "n"},
]
CTRF = {
    "results": {
        "tests": [
            {"name": "test_a", "status": "failed", "message": "assert 1 == 2"},
            {"name": "test_b", "status": "passed"},
            {"name": "test_c", "status": "skipped"},
            {"name": "test_d", "status": "failed", "trace": "Traceback"},
        ]
    }
}
PYTEST = (
    b"collected 3 items\n\x1b[32mPASSED\x1b[0m ../tests/test_outputs.py::test_there\n"
    b"FAILED ../tests/test_outputs.py::test_text[a b] - AssertionError: assert 'x' == 'y'\n"
    b"SKIPPED [1] tests/test_x.py:3: no\nERROR tests/t.py::test_e\n1 failed, 1 passed\n"
)


@pytest.mark.parametrize(
    ("parse", "data", "expected"),
    [
        (parse_checks, json.dumps(OURS), [Check("a", False, "3"), Check("b", True, note="n")]),
        (parse_checks, '[{"what": "a", "passed": "yes"}, {"passed": true}, 3]', [Check("a")]),
        (parse_checks, '{"what": "a"}', []),
        (parse_checks, "[[", []),
        (parse_checks, '[{"what": "a", "got": {"b": [1]}, "passed": false}]', [Check("a", False, got='{"b":[1]}')]),
        (parse_ctrf, json.dumps(CTRF), [
            Check("test_a", False, note="assert 1 == 2"), Check("test_b", True), Check("test_c"),
            Check("test_d", False, note="Traceback"),
        ]),
        (parse_ctrf, '{"results": {"tests": {"name": "a"}}}', []),
        (parse_ctrf, "[]", []),
        (parse_pytest, PYTEST.decode(), [
            Check("../tests/test_outputs.py::test_there", True),
            Check("../tests/test_outputs.py::test_text[a b]", False, note="AssertionError: assert 'x' == 'y'"),
            Check("tests/t.py::test_e", False),
        ]),
        (parse_pytest, "I FAILED to find it", []),
    ],
)  # fmt: skip
def test_forms(parse: Any, data: str, expected: list[Check]) -> None:
    assert list(parse(data.encode())) == expected


def test_what_is_kept_of_many_and_long_checks() -> None:
    long = parse_checks(json.dumps([{"what": "a", "got": "x" * 9999}]).encode())[0]
    assert len(long.got) == LONGEST_TEXT + 1 and long.got.endswith("…")
    every = [Check(f"{n}", True) for n in range(MOST_CHECKS)] + [Check("bad", False), Check("left out")]
    report = report_of(every, "verifier/checks.json")
    assert [check.what for check in report.checks[:2]] == ["bad", "left out"]
    assert (len(report.checks), report.passed, report.failed) == (MOST_CHECKS, MOST_CHECKS, 1)


def trial(folder: Path, files: dict[str, str | bytes]) -> Path:
    told = {"verifier_result": {"rewards": {"reward": 0.0}}}
    for name, text in {"result.json": json.dumps(told), **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize(
    ("files", "source", "output_file", "output"),
    [
        ({}, "", "", ""),
        ({"verifier/reward.txt": "0"}, "", "", ""),
        ({"verifier/checks.json": json.dumps(OURS), "verifier/ctrf.json": json.dumps(CTRF)},
         "verifier/checks.json", "", ""),
        ({"verifier/checks.json": "{", "verifier/ctrf.json": json.dumps(CTRF)}, "verifier/ctrf.json", "", ""),
        ({"verifier/test-stdout.txt": PYTEST, "verifier/test-stderr.txt": "late"},
         "verifier/test-stdout.txt", "verifier/test-stdout.txt", "1 failed, 1 passed"),
        ({"agent/verifier.log": "judged: 0\n", "agent/agent.log": "x"}, "", "agent/verifier.log", "judged: 0"),
        ({"verifier/judge.out": "no\n", "verifier/reward-2.txt": "1"}, "", "verifier/judge.out", "no"),
        ({"verifier/judge.out": b"\0\1"}, "", "", ""),
        ({"verifier/test-stdout.txt": "\n".join(map(str, range(500)))},
         "", "verifier/test-stdout.txt", f"{499}"),
    ],
)  # fmt: skip
def test_which_file_is_read(
    tmp_path: Path, files: dict[str, str | bytes], source: str, output_file: str, output: str
) -> None:
    report = TrajectoryReader(trial(tmp_path / "t", files)).read().verifier
    assert (report.source, report.output_file) == (source, output_file)
    assert report.output.split("\n")[-1] == output and report.output.count("\n") < OUTPUT_LINES
    assert report.known == bool(source or output_file)


@pytest.mark.parametrize("name", ["checks.json", "ctrf.json"])
def test_a_report_that_is_too_large_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is not read as if there were none: that would say that the verifier recorded only the reward."""
    monkeypatch.setattr(verifier, "LARGEST", 1 << 20)
    many = [{"what": f"check {n} {'x' * 1000}", "passed": False} for n in range(1200)]
    document: object = many if name == "checks.json" else {"results": {"tests": many}}
    files: dict[str, str | bytes] = {f"verifier/{name}": json.dumps(document), "verifier/reward.txt": "0"}
    read = TrajectoryReader(trial(tmp_path / "t", files)).read()
    (words,) = read.verifier.unread
    assert words == f"verifier/{name} was not read: too large to read (it has 1.2 MiB, the limit is 1)"
    assert read.verifier.known and report_lines({"reward": 0.0}, read.verifier) == [words]
    assert words in "\n".join(f"{block.text}" for block in reward_blocks(read))
    few: dict[str, str | bytes] = files | {"verifier/test-stdout.txt": PYTEST}
    other = TrajectoryReader(trial(tmp_path / "u", few)).read().verifier
    assert other.source == "verifier/test-stdout.txt" and other.unread == (words,), "another file is read"


def test_a_report_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    reader = TrajectoryReader(trial(tmp_path / "t", {"verifier/checks.json": json.dumps(OURS)}))
    first = reader.read()
    assert (first.verifier.failed, reader.read()) == (1, first)
    path = tmp_path / "t" / "verifier" / "checks.json"
    path.write_text(json.dumps([OURS[1]]))
    assert (reader.read().verifier.failed, reader.read().verifier.passed) == (0, 1)
    path.unlink()
    assert reader.read().verifier == VerifierReport()


def test_a_link_out_of_the_trial_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text(json.dumps(OURS))
    folder = trial(tmp_path / "t", {"verifier/reward.txt": "0"})
    os.symlink(tmp_path / "secret.json", folder / "verifier" / "checks.json")
    assert TrajectoryReader(folder).read().verifier == VerifierReport()


@pytest.mark.parametrize(
    ("row", "expected", "rewards"),
    [
        ({"gts": "42", "pred": "41", "acc": False, "score": 0.0}, [Check("", False, "42", "41")], {"reward": 0.0}),
        ({"gts": 42, "score": 1.0, "format_reward": 0.5}, [Check("", None, "42")],
         {"reward": 1.0, "format_reward": 0.5}),
        ({"score": 0.5, "step": 3}, [], {"reward": 0.5}),
    ],
)  # fmt: skip
def test_what_verl_writes_of_its_reward_function(
    tmp_path: Path, row: dict[str, Any], expected: list[Check], rewards: dict[str, float]
) -> None:
    dump = tmp_path / "rollouts" / "3.jsonl"
    dump.parent.mkdir()
    dump.write_text(json.dumps({"uid": "u_0_0", "input": "q", "output": "a", **row}) + "\n")
    trajectory = reader_of(dump / "u_0").read()
    found = [(c.passed, c.expected, c.got) for c in trajectory.verifier.checks]
    assert found == [(c.passed, c.expected, c.got) for c in expected]
    assert trajectory.rewards == rewards


@pytest.mark.parametrize("task", [next(t for t in TASKS.values() if t.kind == kind) for kind in
                                  ("create", "replace", "move", "total")], ids=lambda t: t.kind)  # fmt: skip
def test_the_checks_of_our_own_tasks_say_what_is_wrong(tmp_path: Path, task: Any) -> None:
    folder = tmp_path / "trial"
    sandbox = folder / "sandbox"
    for name, text in task.files.items():
        (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
        (sandbox / name).write_text(text)
    untouched = checks(task, sandbox)
    assert reward_of(untouched) == 0.0 and not any(check.passed for check in untouched[1:])
    write_checks(folder.resolve(), untouched)
    report = TrajectoryReader(folder).read().verifier
    assert report.failed == len(untouched) and set(report.checks) == set(untouched)
    (sandbox / ".submitted").touch()
    for name, text in task.expect.items():
        if text is None:
            (sandbox / name).unlink()
        else:
            (sandbox / name).parent.mkdir(parents=True, exist_ok=True)
            (sandbox / name).write_text(text)
    assert reward_of(checks(task, sandbox)) == 1.0


BY = {"function": "r.py:score", "ground_truth": "18"}
VALUES = {"score": 0.5, "letters": 121, "pred": "17"}
SCORED = {"reward_from": BY, "reward_extra_info": VALUES}
WORKER = "ray.exceptions.RayTaskError(E): ray::RewardLoopWorker.compute_score() (pid=1)\n"
CALL = '  File "/verl/trainer/ppo/reward.py", line 38, in _call_with_kwargs\n    return raw_fn(*args)\n'
INSIDE = f'{CALL}  File "/w/r.py", line 7, in score\n    int("x")\n'
AGENT = '  File "/w/agent.py", line 3, in run\n'


def failure(text: str) -> dict[str, str]:
    return {"exception_type": "E", "exception_message": "no", "exception_traceback": text}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, None),
        ({"exception_info": failure(AGENT)}, None),
        ({"exception_info": None}, None),
        ({"reward_from": BY}, ("reward from r.py:score", None, "18", "")),
        (SCORED, ("reward from r.py:score", None, "18", "score 0.5, letters 121, pred 17")),
        (
            {"reward_extra_info": VALUES},
            ("reward from the reward function", None, "", "score 0.5, letters 121, pred 17"),
        ),
        (
            {"reward_from": BY, "tool_rewards": [0.25, 0, 1.0], "reward_extra_info": VALUES},
            ("reward from r.py:score", None, "18", "score 0.5, letters 121, pred 17, tool_rewards 0.25 0 1"),
        ),
        (
            {"reward_from": BY, "tool_rewards": [None, "x"]},
            ("reward from r.py:score", None, "18", ""),
        ),
        (
            {"reward_from": BY, "exception_info": failure(WORKER + INSIDE)},
            ("reward from r.py:score", False, "18", "failed with E: no (r.py:7 in score)"),
        ),
        (
            {"exception_info": failure(WORKER + CALL)},
            (
                "reward from the reward function", False, "",
                "failed with E: no (reward.py:38 in _call_with_kwargs); verl calls it with data_source, solution_str, "
                "ground_truth, extra_info and the names in reward.kwargs",
            ),
        ),
    ],
)  # fmt: skip
def test_a_result_tells_of_its_reward_function(
    result: dict[str, Any], words: tuple[str, bool | None, str, str] | None
) -> None:
    check = reward_check(result)
    assert (check and (check.what, check.passed, check.expected, check.note)) == words
    own = report_of([Check("a", True)], "f")
    assert with_reward(own, result) == own, "a verifier's own checks say more"
    assert with_reward(VerifierReport(), None) == VerifierReport()


@pytest.mark.parametrize(
    ("rewards", "report", "title", "lines"),
    [
        ({"reward": 0.0}, VerifierReport(), "why reward 0", [UNKNOWN]),
        ({"tests": 0.5}, report_of([Check("a", True)], "f"), "why tests 0.5", ["checks: 1 check passed (f)", "  ✔ a"]),
        ({"reward": 0.25, "format": 1.0}, report_of([Check("a", False, "1", "2\n3", "no")], "f"), "why reward 0.25",
         ["parts: reward 0.25, format 1", "checks: 1 of 1 check failed (f)", "  ✖ a", "      expected 1",
          "      got      2", "               3", "      says     no"]),
        ({}, report_of([Check("a")], "f", "out", "o"), "why no reward",
         ["checks: checks not judged (f)", "  ○ a", "output, the end of o:", "  out"]),
        ({"reward": 0.5}, with_reward(VerifierReport(), SCORED), "why reward 0.5",
         ["  ○ reward from r.py:score", "      expected 18", "      says     score 0.5, letters 121, pred 17"]),
    ],
)  # fmt: skip
def test_words(rewards: dict[str, float], report: VerifierReport, title: str, lines: list[str]) -> None:
    assert (reward_title(rewards), report_lines(rewards, report)) == (title, lines)
    assert counted(report) in "\n".join(lines)
