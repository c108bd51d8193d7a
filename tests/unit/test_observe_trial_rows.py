"""The rows of a trial and the facts of its session, in our files and in those of the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kit.screens import trial as trial_head

from liverl.observe.trials.rows import FILLED, read_rows, row_faults
from liverl.observe.trials.scanner import LineReader
from liverl.observe.trials.session_facts import (
    SessionFacts,
    SessionTally,
    document_session,
    joined,
    turn_session,
)
from liverl.observe.trials.tallies import StepTallies
from liverl.observe.trials.trajectory import TrajectoryReader, read_trajectory
from liverl.observe.trials.trial import Trial
from liverl_tui.widgets.trajectory.document import build
from liverl_tui.widgets.trajectory.session import session_lines, session_summary

MESSAGES = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "fix it"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "a.py"},
    {"role": "assistant", "content": "done"},
]


def row(**changed: Any) -> dict[str, Any]:
    """A row of 3 prompt ids, a reply of 10, 2 ids of a tool, and a reply of 10; ``changed``: fields, None: left out."""
    whole = {
        "initial_prompt_token_len": 3,
        "traj_acc_ids": list(range(25)),
        "traj_response_mask": [1] * 10 + [0] * 2 + [1] * 10,
        "traj_response_logprobs": [-0.5] * 10 + [0.0] * 2 + [-0.25] * 10,
        **changed,
    }
    return {name: value for name, value in whole.items() if value is not None}


def logprobs(*parts: tuple[float, int]) -> dict[str, Any]:
    return {"traj_response_logprobs": [value for value, count in parts for _ in range(count)]}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, ""),
        ({"traj_response_mask": [1] * 21}, "traj_response_mask has 21 entries, expected 22"),
        ({"traj_response_mask": [1] * 23}, "traj_response_mask has 23 entries, expected 22"),
        (logprobs((-0.5, 21)), "traj_response_logprobs has 21 entries, expected 22"),
        (logprobs((-0.5, 22)), "2 tokens with mask 0 have a log-probability, expected 0.0"),
        (
            {"initial_prompt_token_len": 26},
            "initial_prompt_token_len is 26, but traj_acc_ids has only 25 ids",
        ),
        (
            {"initial_prompt_token_len": None},
            "initial_prompt_token_len is missing, expected a number of tokens",
        ),
        (
            {"initial_prompt_token_len": "3"},
            "initial_prompt_token_len is a text, expected a number of tokens",
        ),
        ({"initial_prompt_token_len": -1}, "initial_prompt_token_len is -1, expected a number of tokens"),
        ({"traj_response_logprobs": None}, "traj_response_logprobs is missing, expected a list of numbers"),
        ({"traj_response_logprobs": [None] * 22}, "traj_response_logprobs is a list with null, expected"),
        ({"traj_acc_ids": {}}, "traj_acc_ids is an object, expected a list of numbers"),
        # the reference fills with zeros what it cannot compute
        (logprobs((0.0, 12), (-0.25, 10)), "1 reply (10 tokens) have log-probability 0.0 throughout"),
        (logprobs((0.0, 22)), "2 replies (20 tokens) have log-probability 0.0 throughout"),
        (logprobs((-0.5, 10), (0.0, 12)), "1 reply (10 tokens) have log-probability 0.0 throughout"),
        # single certain tokens, and certain syntax around one that is not, are honest
        (logprobs((-0.5, 9), (0.0, 3), (-0.25, 10)), ""),
        (logprobs((0.0, 9), (-0.5, 1), (0.0, 11), (-0.25, 1)), ""),
    ],
)
def test_the_rules_of_a_row(changed: dict[str, Any], fault: str) -> None:
    faults = [found.words for found in row_faults(row(**changed))]
    assert len(faults) == bool(fault) and "".join(faults).startswith(fault)


@pytest.mark.parametrize(("length", "fires"), [(FILLED, True), (FILLED - 1, False), (1, False)])
def test_a_short_reply_may_be_certain(length: int, fires: bool) -> None:
    short = {
        "initial_prompt_token_len": 1,
        "traj_acc_ids": [0] * (1 + length),
        "traj_response_mask": [1] * length,
        "traj_response_logprobs": [0.0] * length,
    }
    assert bool(list(row_faults(short))) == fires


def test_rows_by_kind_each_with_its_faults() -> None:
    rows = [{"kind": "sub", **row(traj_response_mask=[1] * 3)}, 7, {"kind": "main", **row()}, row()]
    read = read_rows({"rows": rows})
    assert read.kinds == {"sub": 1, "main": 2} and read.sampled == {"sub": 3, "main": 40}
    # the length of the mask is wrong, so nothing is said of the log-probabilities
    assert [fault[:26] for fault in read.faults] == [
        "row 1 of 4 (sub): traj_res",
        "row 2: found a number, exp",
    ]
    assert read_rows({"messages_snapshot": MESSAGES}).kinds == {}, "only messages: no row to check"
    assert read_rows({"rows": []}) == read_rows({})


# --- a directory of the reference's generation 2, written from its description only ------------------------


def foreign(folder: Path, **document: Any) -> Path:
    """``harbor_trials/<project>/<exp>/step_0003/<task>-<8 hex>``, after its session has ended."""
    trial = folder / "harbor_trials" / "swe" / "exp-1" / "step_0003" / "django__django-11099-0a1b2c3d"
    (trial / "verifier").mkdir(parents=True)
    (trial / "agent").mkdir()
    (trial / "agent" / "openhands_sdk.txt").write_text("log\n")
    (trial / "verifier" / "reward.txt").write_text("1\n")
    (trial / "verifier" / "report.json").write_text('{"resolved": true, "patch_successfully_applied": true}')
    (trial / "verifier" / "test-stdout.txt").write_text("ok\n")
    result = {
        "trial_name": trial.name,
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
    }
    (trial / "result.json").write_text(json.dumps(result))
    whole = {
        "session_id": trial.name,
        "messages_snapshot": MESSAGES,
        "message_snap_debug": [
            {"index": n, "role": m["role"], "source": "request", "timestamp": 1.7e9}
            for n, m in enumerate(MESSAGES)
        ],
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        **document,
    }
    (trial / "proxy_trajectory.json").write_text(json.dumps(whole))
    return trial


def head_of(trial: Path) -> Any:
    read = Trial(str(trial.parent.parent), f"{trial.parent.name}/{trial.name}", 3)
    assert read.check(LineReader(), 2e9)
    return read.head()


def test_a_foreign_trial_with_messages_reads_as_ours(tmp_path: Path) -> None:
    trial = foreign(tmp_path)
    found = read_trajectory(trial)
    assert (found.task, found.step, found.running, found.rewards) == (
        "django__django-11099",
        3,
        False,
        {"reward": 1.0},
    )
    assert len(found.turns) == 2 and found.tool_calls == 1 and found.turns[0].answer[-1].name == "bash"
    assert found.session is None and found.flags == () and found.source == "proxy_trajectory.json"
    head = head_of(trial)
    assert (head.turns, head.tool_calls, head.state, head.reward) == (2, 1, "finished", 1.0)


def test_a_foreign_trial_with_tokens_shows_its_row_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    found = read_trajectory(foreign(tmp_path / "good", **row()))
    assert found.session == SessionFacts({"main": 1}, {"main": 20}, ended=True)
    assert found.flags == () and len(found.turns) == 2
    filled = read_trajectory(foreign(tmp_path / "filled", **row(**logprobs((0.0, 12), (-0.25, 10)))))
    assert filled.session is not None and "zero_logprobs" in filled.flags
    notes = [block.text for block in build(filled) if block.key.startswith("fault:")]
    assert notes == [
        "▲ proxy_trajectory.json: its row: 1 reply (10 tokens) have log-probability 0.0 throughout: filled with zeros "
        "instead of measured, which training treats as tokens with probability 1"
    ]
    bare = foreign(tmp_path / "bare", messages_snapshot=None, **row())
    tokens = json.loads((bare / "proxy_trajectory.json").read_text())
    del tokens["messages_snapshot"]
    (bare / "proxy_trajectory.json").write_text(json.dumps(tokens))
    only = read_trajectory(bare)
    assert only.turns == () and only.session == found.session and "contains only tokens: 20" in only.note


# --- our own trials ----------------------------------------------------------------------------------------


def record(kind: str, opens: bool, tokens: int, **counters: Any) -> str:
    reply = {"role": "assistant", "content": "ok"}
    return json.dumps(
        {
            "success": True,
            "request_body": {"messages": [{"role": "user", "content": kind}], "tools": [{"name": "bash"}]},
            "response_body": {"choices": [{"finish_reason": "stop", "message": reply}]},
            "usage": {"prompt_tokens": 9, "completion_tokens": tokens},
            "session": {"kind": kind, "opens": opens, "counters": counters},
        }
    )


def ours(folder: Path, *lines: str) -> Path:
    trial = folder / "step_0003" / "t-00000001"
    trial.mkdir(parents=True)
    (trial / "litellm-trajectory.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return trial


def test_a_running_trial_shows_its_session_turn_by_turn(tmp_path: Path) -> None:
    trial = ours(tmp_path, record("main", True, 10, num_calls=1), record("sub", True, 90, num_calls=2))
    reader = TrajectoryReader(trial)
    assert reader.read().session == SessionFacts(
        {"main": 1, "sub": 1}, {"main": 10, "sub": 90}, {"num_calls": 2}
    )
    assert reader.read().flags == ("zero_tool_calls", "mostly_sub")
    with (trial / "litellm-trajectory.jsonl").open("a") as file:
        file.write(
            record("sub", False, 5, num_calls=3) + "\n" + record("hidden", True, 1, num_calls=4, rewrites=2)
        )
        file.write("\n")
    session = reader.read().session
    assert session is not None and not session.ended
    assert session.rows == {"main": 1, "sub": 1, "hidden": 1} and session.counters == {
        "num_calls": 4,
        "rewrites": 2,
    }
    assert [turn.kind for turn in reader.read().turns] == ["main", "sub", "sub", "hidden"]
    head = head_of(trial)
    assert (head.rewrites, head.sub_tokens, head.completion_tokens) == (2, 95, 106)
    assert "mostly_sub" in head.flags and head.state == "running"


def test_at_its_end_the_rows_are_those_of_the_document_and_hidden_ones_stay(tmp_path: Path) -> None:
    trial = ours(tmp_path, record("main", True, 20, num_calls=1), record("hidden", True, 1, num_calls=2))
    rows = [{"kind": "rewrite", **row()}, {"kind": "main", **row()}]
    counters = {"num_calls": 3, "proxy_tool_call_sec": 1.5, "odd": "x", "flag": True}
    document = {
        "session_id": trial.name,
        "messages_snapshot": MESSAGES,
        **row(),
        "rows": rows,
        "counters": counters,
    }
    reader = TrajectoryReader(trial)
    reader.read()
    (trial / "proxy_trajectory.json").write_text(json.dumps(document))
    found = reader.read()
    assert found.session == SessionFacts(
        {"rewrite": 1, "main": 1, "hidden": 1},
        {"main": 20, "hidden": 1},
        {"num_calls": 3, "proxy_tool_call_sec": 1.5},
        ended=True,
    )
    assert found.running and len(found.turns) == 2, (
        "it has ended when it has its result; its turns are the records"
    )
    assert found.source == "litellm-trajectory.jsonl" and found.note == ""


@pytest.mark.parametrize("odd", [None, 7, [], {}, {"kind": 3}])
def test_a_record_without_a_session_has_none(tmp_path: Path, odd: Any) -> None:
    line = json.dumps({**json.loads(record("main", True, 10)), "session": odd})
    trial = ours(tmp_path, line)
    assert read_trajectory(trial).session is None
    assert (head_of(trial).rewrites, head_of(trial).sub_tokens, head_of(trial).turns) == (None, None, 1)


def test_the_lines_of_a_session() -> None:
    counters = {
        "num_calls": 12,
        "num_joined": 1,
        "num_aborts": 2,
        "num_moved": 1,
        "total_prompt_tokens": 51737,
        "total_completion_tokens": 536,
        "healed": 3,
        "rewrites": 1,
        "sub_agents": 2,
        "context_overflow": 1,
        "min_global_steps": 3,
        "max_global_steps": 5,
        "proxy_model_inference_sec": 12.34,
        "proxy_tool_call_sec": 4.5,
        "tool_gap_sec": 1.25,
        "replica_wait_sec": 61.0,
        "refused_turns": 2,
        "parse_failed": 1,
        "asides": 3,
    }
    facts = SessionFacts(
        {"hidden": 1, "sub": 2, "main": 1, "rewrite": 1},
        {"main": 300, "sub": 100},
        counters,
        ended=True,
        overridden=("seed", "top_p"),
        ignored=("store",),
        refused=("n", "tool_choice"),
        refusal="n is not supported",
    )
    assert list(session_lines(facts)) == [
        "recorded    by the session proxy: the tokens that were sampled, not their text",
        "rows        1 main, 1 rewrite, 2 sub, 1 hidden (hidden: kept, not trained)",
        "requests    12 answered, 1 joined to an equal one, 1 refused as longer than the context, "
        "2 refused: no turns left",
        "replies     3 kept as sampled (healed): their text would give other tokens, "
        "2 cut by a weight update and continued, "
        "1 continued on another replica, 1 given as plain text: their tool parser failed",
        "history     1 changed histories, 2 sub-agents, 3 side questions",
        "tokens      51.7k prompt, 536 sampled, 25% of them by sub-agents",
        "sampling    the trainer's; the agent asked for other values: seed, top_p",
        "no effect   fields of requests: store",
        "refused     requests for what they asked: n, tool_choice; the newest one: n is not supported",
        "versions    v3 to v5",
        "time        model 12.3 s, tools 4.5 s, last gap between two requests 1.2 s, without a replica 61.0 s",
    ]
    assert session_summary(facts) == "12 requests in 4 rows of tokens for training, 3 replies kept as sampled"
    early = list(
        session_lines(
            SessionFacts(
                {"main": 1}, {"main": 3}, {"num_calls": 1, "min_global_steps": 0, "max_global_steps": 0}
            )
        )
    )
    assert early[1] == "rows        1 main, so far" and "versions    v0" in early
    assert session_summary(SessionFacts({"main": 1})) == "1 row of tokens for training, so far"
    assert len(list(session_lines(SessionFacts({"main": 1}, {}, ended=True)))) == 2, (
        "the reference counts nothing"
    )


def test_what_a_client_asked_for_in_vain_is_known_while_a_trial_runs_and_at_its_end() -> None:
    counters = {"num_calls": 2, "overridden": {"seed": 1, "top_p": 1}, "ignored": {"store": 1}}
    turn = turn_session({"kind": "main", "opens": True, "counters": counters})
    tally = SessionTally()
    tally.add(turn, 3)
    for facts in (tally.facts, document_session({"counters": counters}), joined(tally.facts, SessionFacts())):
        assert facts is not None and (facts.overridden, facts.ignored) == (("seed", "top_p"), ("store",))


def test_the_document_of_a_running_trial_does_not_end_it(tmp_path: Path) -> None:
    trial = ours(tmp_path, record("main", True, 20).replace('"stop"', '"length"'))
    (trial / "proxy_trajectory.json").write_text(json.dumps({"rows": [row()]}))
    assert read_trajectory(trial).flags == ("truncated",), "its agent may still call a tool"


def test_only_ended_sessions_count_in_a_step() -> None:
    tallies = StepTallies()
    for number, state in enumerate(("finished", "running", "finished")):
        tallies.add(trial_head(number, state=state, rewrites=number, sub_tokens=20), 0)
    tallies.add(trial_head(3, rewrites=None), 0)
    (step,) = tallies.steps(tallies.went_back(), unknown=False)
    assert (step.sessions, step.rewritten, step.session_tokens, step.sub_tokens) == (2, 1, 840, 40)
