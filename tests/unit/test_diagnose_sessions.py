"""The rules for trials that go through sessions: what fires each, what must not, and its limits."""

from __future__ import annotations

from typing import Any

import pytest
from kit.screens import NOW, replica, service, snapshot, through_sessions, trial
from kit.symptoms import proof
from msgspec.structs import replace

from liverl.diagnose.catalogue.rules import FILE_RULES, RULES
from liverl.diagnose.catalogue.sessions import NOT_BEGUN_S, SILENT_SESSION_S
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import (
    ReplicaSet,
    SessionProcessEnd,
    SilentSession,
    Snapshot,
    StalledProcess,
    StepTrials,
    Symptom,
    TokenRoute,
    TrialsStatus,
)

ASIDES = "asides_dominate"
JUMP, SUB, SILENT = "rewrites_jump", "sub_agents_dominate", "session_silent"


def found(now: Snapshot, rules: Any = RULES) -> dict[str, Symptom]:
    seen = Window(now, now, RunContext())
    return {s.id: s for rule in rules for s in rule.look(seen) if isinstance(s, Symptom)}


def step(
    number: int, sessions: int, rewritten: int = 0, tokens: int = 1000, of_sub: int = 0, asides: int = 0
) -> StepTrials:
    return StepTrials(
        number,
        sessions,
        sessions,
        0,
        0.5,
        calling=sessions,
        sessions=sessions,
        rewritten=rewritten,
        session_tokens=tokens,
        sub_tokens=of_sub,
        aside_tokens=asides,
    )


def steps(*newest_first: StepTrials, heads: tuple[Any, ...] = ()) -> Snapshot:
    return through_sessions(trials=TrialsStatus(newest=heads, steps=newest_first))


# --- changed histories -------------------------------------------------------------------------------------


def of(*rewritten: int, sessions: int = 16) -> Snapshot:
    """Steps with so many changed histories, the newest first."""
    return steps(*(step(100 - n, sessions, many) for n, many in enumerate(rewritten)))


def test_a_jump_of_changed_histories() -> None:
    heads = (trial(1, step=100, rewrites=3), trial(2, step=100, rewrites=0), trial(3, step=99, rewrites=1))
    now = of(9, 1, 0, 2)
    symptom = found(replace(now, trials=replace(now.trials, newest=heads)))[JUMP]
    assert (
        symptom.title == "9 of 16 agents of step 100 change their history" and symptom.severity == "warning"
    )
    assert "in the steps before it 6% did" in symptom.cause
    assert proof(symptom) == ("trials/step_0100/trial-001: 3 changes",)
    assert "trials of step 100 sent a conversation" in symptom.cause
    # The other trials of the step had every request refused: "of 16 trials" is not of all.
    part = replace(now.trials.steps[0], total=64, finished=64)
    one = (trial(1, step=100, rewrites=1),)
    now = replace(now, trials=replace(now.trials, newest=one, steps=(part, *now.trials.steps[1:])))
    symptom = found(now)[JUMP]
    assert (
        "9 of 16 trials of step 100 whose requests were recorded (48 others had none) sent" in symptom.cause
    )
    assert proof(symptom) == ("trials/step_0100/trial-001: 1 change",)
    assert JUMP in found(now, FILE_RULES), "the files of a run without a backend are enough"


@pytest.mark.parametrize(
    ("rewritten", "fires"),
    [
        ((4, 0, 0, 0), True),  # 25 % more
        ((3, 0, 0, 0), False),  # 19 %, and fewer than four trials
        ((6, 2, 2, 2), True),
        ((5, 2, 2, 2), False),  # 19 % more
        ((16, 16, 16, 16), False),  # they always do
        ((12, 9, 9, 9), False),
        ((9, 0, 0), False),  # two steps are no habit
        ((9, 16, 16, 0, 0, 0, 0), True),  # the median of six
        ((9, 16, 16, 16, 0, 0, 0, 0), False),  # ... of the six that are newest
    ],
)
def test_the_limits_of_a_jump(rewritten: tuple[int, ...], fires: bool) -> None:
    assert (JUMP in found(of(*rewritten))) == fires


def test_few_sessions_are_no_jump() -> None:
    assert JUMP not in found(of(7, 0, 0, 0, sessions=7))
    assert JUMP in found(of(8, 0, 0, 0, sessions=8))
    # a step that has just begun is left out, the one before it counts
    assert JUMP in found(steps(step(101, 3, 3), *of(9, 0, 0, 0).trials.steps))


def test_trials_through_litellm_have_no_sessions() -> None:
    plain = StepTrials(8, 32, 32, 0, 0.5)
    assert not {JUMP, SUB, SILENT} & set(found(snapshot(trials=TrialsStatus(steps=(plain,) * 5))))


# --- sub-agents --------------------------------------------------------------------------------------------


def test_sub_agents_that_sample_most() -> None:
    heads = (
        trial(1, step=8, sub_tokens=300, flags=("mostly_sub",)),
        trial(2, step=8, sub_tokens=1),
        trial(3, step=8, sub_tokens=300, flags=("mostly_sub",), earlier=True),
    )
    symptom = found(steps(step(8, 4, of_sub=620), heads=heads))[SUB]
    assert symptom.title == "sub-agents sample 62% of the tokens of step 8"
    assert "620 of 1,000 tokens" in symptom.cause and "session_proxy.main_agent_prefix_match" in symptom.fix
    assert proof(symptom) == ("trials/step_0008/trial-001: 300 of 420 tokens by sub-agents",)


@pytest.mark.parametrize(
    ("step_", "fires"),
    [
        (step(8, 4, of_sub=501), True),
        (step(8, 4, of_sub=500), False),
        (step(8, 3, of_sub=900), False),  # too few trials
        (step(8, 4, tokens=0), False),
    ],
)
def test_the_limits_of_sub_agents(step_: StepTrials, fires: bool) -> None:
    assert (SUB in found(steps(step_))) == fires


def test_side_questions_that_take_most_tokens() -> None:
    heads = (trial(1, step=8, aside_tokens=300), trial(2, step=8, aside_tokens=20))
    symptom = found(steps(step(8, 4, asides=700), heads=heads))[ASIDES]
    assert symptom.title == "70% of the tokens of step 8 are side questions"
    assert "700 of 1,000 tokens" in symptom.cause and "session_proxy.asides" in symptom.fix
    assert proof(symptom) == ("trials/step_0008/trial-001: 300 of 420 tokens beside the conversation",)


@pytest.mark.parametrize(
    ("step_", "fires"),
    [
        (step(8, 4, asides=501), True),
        (step(8, 4, asides=500), False),
        (step(8, 3, asides=900), False),  # too few trials
        (step(8, 4, of_sub=900), False),
    ],
)
def test_the_limits_of_side_questions(step_: StepTrials, fires: bool) -> None:
    assert (ASIDES in found(steps(step_))) == fires


def test_the_newest_step_with_enough_sessions_counts() -> None:
    assert SUB in found(steps(step(9, 1), step(8, 8, of_sub=900)))
    assert SUB not in found(steps(step(9, 8), step(8, 8, of_sub=900)))


# --- silent sessions ---------------------------------------------------------------------------------------


def silent(*sessions: SilentSession, **fields: Any) -> Snapshot:
    base = through_sessions(**fields)
    assert base.sessions is not None
    return replace(base, sessions=replace(base.sessions, silent=sessions))


def one(seconds: float, name: str = "trial-007", **fields: Any) -> SilentSession:
    return SilentSession(name, NOW - seconds, **fields)


def test_a_silent_session() -> None:
    symptom = found(silent(one(900), one(30, "trial-008")))[SILENT]
    assert symptom.title == "1 trial sends no requests" and symptom.since == NOW - 900
    assert "1 of 16 open sessions" in symptom.cause and "10 minutes" in symptom.cause
    assert proof(symptom) == ("trials/step_0007/trial-007: no request for 15 minutes",)
    unlisted = found(silent(one(900, "elsewhere"), one(700, "x")))[SILENT]
    assert unlisted.title == "at least 2 trials send no requests", "the report names no more"
    assert proof(unlisted)[0] == "elsewhere: no request for 15 minutes"


@pytest.mark.parametrize(
    ("session", "fires"),
    [
        (one(SILENT_SESSION_S), True),
        (one(SILENT_SESSION_S - 1), False),
        (one(NOT_BEGUN_S - 1, begun=False), False),  # its sandbox may still be starting
        (one(NOT_BEGUN_S, begun=False), True),
        (one(900, "trial-003"), False),  # that trial has its result
    ],
)
def test_the_limits_of_silence(session: SilentSession, fires: bool) -> None:
    assert (SILENT in found(silent(session))) == fires


def test_silence_that_has_another_cause() -> None:
    alone = one(900)
    assert SILENT in found(silent(alone))
    assert SILENT not in found(silent(alone, state="stopping"))
    down = service("sessions", "sessions", "starting")
    assert SILENT not in found(silent(alone, services=(*snapshot().services, down)))
    stalled = service("sessions", "sessions", stalled=(StalledProcess(4, "T", NOW - 5),))
    assert SILENT not in found(silent(alone, services=(*snapshot().services, stalled)))
    idle = {"running": 0.0, "waiting": 0.0}
    heads = tuple(trial(n, step=8, state="running", updated_at=NOW) for n in range(24))
    every = silent(
        alone,
        step=7,
        replicas=ReplicaSet(2, 2, 2, (replica(0, **idle), replica(1, **idle))),
        trials=TrialsStatus(newest=heads, steps=(StepTrials(8, 32, 8, 0, 0.5),)),
    )
    assert set(found(every)) == {"agents_silent"}, "all of them are silent: one alert"


# --- tokens of our own ---------------------------------------------------------------------------------------


def with_routes(*routes: TokenRoute) -> Snapshot:
    now = through_sessions()
    assert now.sessions is not None
    return through_sessions(sessions=replace(now.sessions, tokenizers=routes))


DIFFERS = "token 7 is 3 ('a') at the replica, 4 ('b') here"


@pytest.mark.parametrize(
    ("doubted", "ended", "severity", "words"),
    [
        (0, 0, "info", "no turn was sampled from such a prompt"),
        (5, 0, "warning", "5 turns of open trials since the last comparison that agreed are not trained"),
        (0, 2, "warning", "2 turns of trials that had ended before may be trained"),
    ],
)
def test_tokens_that_differ(doubted: int, ended: int, severity: str, words: str) -> None:
    route = TokenRoute("m", "replicas", "w", DIFFERS, 90, 3, doubted, ended)
    symptom = found(with_routes(TokenRoute("n", "sessions"), route))["tokens_differ"]
    assert symptom.severity == severity and words in symptom.cause and len(symptom.title) <= 60
    assert [one.text for one in symptom.evidence] == [f"m: {DIFFERS}"]
    assert ("resume from the checkpoint" in symptom.fix) == bool(ended)


def test_tokens_that_the_replicas_make_for_another_reason_are_no_alert() -> None:
    left = TokenRoute("m", "replicas", "/m has no tokenizer.json")
    assert "tokens_differ" not in found(with_routes(left, TokenRoute("n"), TokenRoute("o", "sessions")))
    assert "tokens_differ" not in found(through_sessions(sessions=None))


# --- processes of the sessions -----------------------------------------------------------------------------


def with_ends(*ends: SessionProcessEnd, **changes: Any) -> Snapshot:
    now = through_sessions(**changes)
    assert now.sessions is not None
    return replace(now, sessions=replace(now.sessions, process_ends=ends))


def test_a_process_of_the_sessions_that_ended() -> None:
    old = SessionProcessEnd(1, 4, "SIGSEGV", NOW - 301, 3, 3)
    killed = SessionProcessEnd(2, 4, "SIGKILL", NOW - 20, 7, 7)
    assert "session_process_ended" not in found(with_ends(old))
    symptom = found(with_ends(old, killed))["session_process_ended"]
    assert (symptom.title, symptom.severity) == ("process 2 of 4 of sessions ended (SIGKILL)", "warning")
    assert "it had 7 open sessions, and 7 were opened again" in symptom.cause and symptom.since == NOW - 20
    assert "OOM killer" in symptom.fix
    assert proof(symptom) == ("process 2 of 4: SIGKILL; it had 7 open sessions, and 7 were opened again",)


def test_several_processes_that_ended_are_one_alert() -> None:
    ends = [SessionProcessEnd(n, 4, "exit code 1", NOW - 20 + n, n, None if n == 3 else 1) for n in (1, 2, 3)]
    symptom = found(with_ends(*ends))["session_process_ended"]
    assert symptom.title == "3 processes of sessions ended (exit code 1)" and "OOM" not in symptom.fix
    assert [one.text for one in symptom.evidence] == [
        "process 3 of 4: exit code 1; it had 3 open sessions, which wait for it",
        "process 2 of 4: exit code 1; it had 2 open sessions, and 1 was opened again",
        "process 1 of 4: exit code 1; it had 1 open session, and 1 was opened again",
    ]
    assert "session_process_ended" not in found(with_ends(*ends, state="done"))
    longest = SessionProcessEnd(10, 64, "killed: it hung " + "x" * 40, NOW)
    assert len(found(with_ends(longest))["session_process_ended"].title) <= 60
