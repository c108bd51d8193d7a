"""Who caused the end of a trial, what follows, how a step's trials are counted, and what verl's metrics say of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.agents import endings
from liverl.agents.endings import (
    CAUSES,
    NOT_AS_MEANT,
    OUTCOMES,
    Cause,
    Ended,
    Ending,
    Endings,
    Session,
    Treatment,
    counted,
    counts_together,
    enough,
    exited,
    judged,
    of_many,
    outcome_of,
    told,
)
from liverl.config import ConfigError, load_config
from liverl.config.layers import from_environment
from liverl.config.sections.agent import AgentEndings
from liverl.sessions.counters import ENGINE
from liverl.verl_runtime import step_endings
from liverl.verl_runtime.endings import StepMetrics, metrics_of, wrap
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, Prompt
from liverl.verl_runtime.step_endings import Counts, StepEndings, of_step, read_step, together
from liverl.verl_runtime.tokens import Assembly, Row
from liverl.verl_runtime.worker_facts import extra_fields, reward_from, rewards_of_tools, validates

FAILED = exited(1, "exited with 1")
LATE = Ended("timeout", why="late", same="timeout")
REFUSED: Any = {"refused": {"n": 1}, "refusal": "n is not supported"}  # counters
LOST = Ended("infrastructure", why="sandbox gone")
DONE = Ended(by="submit")


def after(replies: int = 3, seconds: float = 100.0, waited: float = 0.0, **counters: Any) -> Session:
    return Session(counters, replies, seconds, waited)


# (how the agent ended, what its session counted, the cause)
JUDGED: list[tuple[Ended, Session, Cause]] = [
    (DONE, after(), "done"),
    (FAILED, after(), "exit"),
    (LATE, after(), "timeout"),
    (LOST, after(), "infrastructure"),
    # No reply yet.
    (DONE, after(0), "infrastructure"),
    (FAILED, after(0), "infrastructure"),
    (LATE, after(0), "infrastructure"),
    # No reply, as it asked for what it does not get: the agent's, and the same another time.
    (DONE, after(0, **REFUSED), "exit"),
    (FAILED, after(0, **REFUSED), "exit"),
    (LATE, after(0, **REFUSED), "exit"),
    (Ended("infrastructure", why="Harbor would run it again"), after(0, **REFUSED), "exit"),
    (Ended("infrastructure", why="Harbor would run it again"), after(**REFUSED), "infrastructure"),
    (Ended("limit", "context_length"), after(0, **REFUSED), "limit"),
    (DONE, after(0, replica_lost=1, **REFUSED), "infrastructure"),
    (DONE, after(**REFUSED), "done"),
    (FAILED, after(0, refused={"engine": 2}, refusal="400"), "infrastructure"),
    # What the session lost comes first.
    (DONE, after(replica_lost=1), "infrastructure"),
    (FAILED, after(replica_lost=1, refused_turns=1), "infrastructure"),
    (LATE, after(poisoned=1), "infrastructure"),
    # What the session has refused for good is a limit, whatever the agent did then.
    (DONE, after(refused_turns=1), "limit"),
    (FAILED, after(refused_turns=1), "limit"),
    (LATE, after(refused_turns=4), "limit"),
    (exited(134, "abort"), after(refused_turns=1), "limit"),
    (DONE, after(refused_no_tool=1), "limit"),
    (FAILED, after(refused_no_tool=1), "limit"),
    # What was too long may have been said shorter.
    (DONE, after(context_overflow=2), "done"),
    (DONE, after(context_overflow=2, too_long=1), "limit"),  # it was not: this was its last request
    (DONE, after(refused_tokens=2), "done"),
    (FAILED, after(context_overflow=2), "limit"),
    (FAILED, after(refused_tokens=1), "limit"),
    # A moment of waiting says nothing, even if it was the most of a short trial.
    (LATE, after(seconds=0.4, waited=0.5), "timeout"),
    (LATE, after(seconds=0.4, waited=0.51), "infrastructure"),
    # Our own loop knows.
    (Ended(by="max_iterations"), after(), "limit"),
    (Ended(by="context_length"), after(), "limit"),
    (Ended(by="response_length"), after(), "limit"),
    (Ended("exit", "max_iterations", "raised"), after(), "limit"),
    # Refused after its time.
    (DONE, after(refused_deadline=1), "timeout"),
    (FAILED, after(refused_deadline=1), "timeout"),
    # More than half of the time was spent waiting: too little was left.
    (LATE, after(proxy_scheduler_wait_sec=51), "infrastructure"),
    (LATE, after(proxy_scheduler_wait_sec=50), "timeout"),
    (FAILED, after(replica_wait_sec=51), "infrastructure"),
    (LATE, after(proxy_scheduler_wait_sec=20, replica_wait_sec=31), "infrastructure"),
    (LATE, after(waited=51), "infrastructure"),
    (LATE, after(waited=30, replica_wait_sec=30), "timeout"),  # the same seconds, seen from both sides
    (DONE, after(proxy_scheduler_wait_sec=90), "done"),
    (FAILED, after(refused_turns=1, proxy_scheduler_wait_sec=90), "limit"),
]


@pytest.mark.parametrize(("ended", "session", "cause"), JUDGED)
def test_who_caused_an_end(ended: Ended, session: Session, cause: Cause) -> None:
    found = judged(ended, session)
    assert found.cause == cause
    assert cause == "done" or found.why, "whoever caused it, there are words for it"


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (1, "exit"), (2, "exit"), (3, "exit"), (125, "exit"), (126, "infrastructure"), (127, "infrastructure"),
        (128, "exit"), (134, "infrastructure"), (136, "exit"), (137, "infrastructure"), (138, "exit"),
        (139, "infrastructure"), (143, "exit"), (255, "exit"), (-1, "exit"), (-6, "infrastructure"),
        (-9, "infrastructure"), (-11, "infrastructure"), (-15, "exit"),
    ],
)  # fmt: skip
def test_statuses_that_no_program_gives_itself(status: int, cause: Cause) -> None:
    assert exited(status, "").cause == cause


def test_a_signal_and_its_status_are_the_same_ending() -> None:
    assert exited(-15, "a").same == exited(143, "b").same == "exit 143" != exited(1, "").same
    assert exited(0, "c") == Ended("exit", why="c", same="exit 0"), "Harbor may say so of a failed agent"


@pytest.mark.parametrize("again", [True, False])
def test_whether_another_attempt_could_end_otherwise(again: bool) -> None:
    """The agent's side knows. What the session has lost or refused, and what many trials share, may end otherwise."""
    for cause in ("exit", "timeout", "infrastructure"):
        ended = Ended(cause, why="x", again=again)
        assert judged(ended, after(0)).again is judged(ended, after()).again is again
        assert judged(ended, after(replica_lost=1)).again and of_many(ended, 2, 4).again
    assert Ended().again and exited(1, "").again


NO = "n is not supported (its session refused 1 request of the agent)"


def test_the_name_of_what_the_engine_refuses_is_that_of_the_sessions() -> None:
    assert endings.OF_THE_ENGINE == ENGINE


def test_an_agent_that_asks_for_what_it_does_not_get_is_not_run_again_and_is_no_shared_fault() -> None:
    """A quarter of a step's trials may be of one agent that asks for it."""
    for ended in (FAILED, DONE, LATE):
        found = judged(ended, after(0, **REFUSED))
        assert not found.again and counts_together(found) == ""


WAITED = "it waited 51 of 100 s for its turn, a replica or a sandbox"


@pytest.mark.parametrize(
    ("ended", "session", "why"),
    [
        (DONE, after(), ""),
        (DONE, after(0), "it had no reply yet"),
        (FAILED, after(), "exited with 1"),
        (FAILED, after(0), "it had no reply yet; exited with 1"),
        (FAILED, after(waited=51), f"{WAITED}; exited with 1"),
        (Ended("timeout"), after(waited=51), WAITED),
        (FAILED, after(refused_deadline=1), "its time was over; exited with 1"),
        (FAILED, after(poisoned=1), "a request of it ended replicas, and was refused; exited with 1"),
        (DONE, after(replica_lost=1), "no replica answered it"),
        (Ended(why="no replica answered it"), after(replica_lost=1), "no replica answered it"),
        (DONE, after(refused_turns=1), "it had all its turns"),
        (FAILED, after(0, **REFUSED), f"{NO}; exited with 1"),
        (FAILED, after(**REFUSED), f"{NO}; exited with 1"),
        (LATE, after(0, **REFUSED), f"{NO}; late"),
        (Ended("exit", why=NO, again=False), after(0, **REFUSED), NO),
        (DONE, after(**REFUSED), ""),
        (LOST, after(**REFUSED), f"{NO}; sandbox gone"),
    ],
)
def test_each_reason_is_said_once(ended: Ended, session: Session, why: str) -> None:
    assert judged(ended, session).why == why


@pytest.mark.parametrize(
    ("counters", "waited", "waiting"),
    [
        ({}, 3.0, 3.0),
        ({"proxy_scheduler_wait_sec": 2.0}, 0.0, 2.0),
        ({"replica_wait_sec": 2.0}, 0.0, 2.0),
        ({"replica_wait_sec": 2.0}, 3.0, 3.0),  # an agent that waits for a replica is waiting, too
        ({"replica_wait_sec": 2.0, "proxy_scheduler_wait_sec": 5.0}, 1.0, 7.0),
    ],
)
def test_how_long_an_attempt_waited(counters: dict[str, float], waited: float, waiting: float) -> None:
    assert Session(counters, 1, 9.0, waited).waiting == waiting


def test_an_ending_is_written_without_what_it_does_not_say() -> None:
    said = {"cause": "exit", "why": "x", "outcome": "masked"}
    assert msgspec.to_builtins(Ending("exit", "x", "masked")) == said
    more = Ending("exit", "x", "masked", reward=0.0, verified=True)
    assert msgspec.to_builtins(more) == {**said, "reward": 0.0, "verified": True}


def test_an_ending_that_many_have_says_how_many() -> None:
    found = of_many(Ended("exit", "return", "exited with 1", "exit 1"), 3, 8)
    assert found == Ended(
        "infrastructure", "return", "3 of the 8 trials of its step ended in the same way; exited with 1"
    )


def test_nothing_is_known_of_a_session_at_first() -> None:
    assert Session() == Session({}, 0, 0.0, 0.0) and Session().waiting == 0.0
    assert Session({"poisoned": "x"}).count("poisoned") == 0  # type: ignore[dict-item]


def test_only_what_an_agent_may_have_caused_is_counted_together() -> None:
    assert counts_together(FAILED) == "exit 1" and counts_together(LATE) == "timeout"
    assert counts_together(Ended("exit")) == "exit"
    for ended in (DONE, LOST, Ended("limit", "max_iterations")):
        assert counts_together(ended) == ""


@pytest.mark.parametrize(
    ("same", "total", "many"),
    [
        (1, 1, False),
        (1, 4, False),
        (2, 4, True),
        (2, 8, True),
        (2, 9, False),
        (3, 9, True),
        (16, 64, True),
        (15, 64, False),
    ],
)
def test_a_quarter_of_a_step(same: int, total: int, many: bool) -> None:
    assert enough(same, total) is many


@given(
    st.sampled_from(get_args(Cause)),
    st.sampled_from(get_args(Treatment)),
    st.booleans(),
    st.integers(0, 3),
    st.booleans(),
)
def test_what_becomes_of_an_attempt(
    cause: Cause, treatment: Treatment, verified: bool, left: int, rows: bool
) -> None:
    settings = Endings() if cause == "done" else Endings(**{cause: treatment})
    what = outcome_of(cause, settings, verified=verified, left=left, rows=rows)
    if what in ("trained", "zeroed"):
        assert rows
    if verified and rows:
        assert what == "trained"
    if what == "repeated":
        assert left and treatment == "repeat" and cause != "done"
    if cause == "done":
        assert what == ("trained" if rows else "masked")


def test_the_defaults_are_those_of_the_configuration() -> None:
    loaded = load_config(sets=["run.name=n"], env={"HOME": "/h"}).config.agent.endings
    own = Endings()
    assert AgentEndings.__struct_fields__ == Endings.__struct_fields__
    assert {name: getattr(loaded, name) for name in Endings.__struct_fields__} == {
        name: getattr(own, name) for name in Endings.__struct_fields__
    }


def test_words() -> None:
    assert (
        told(Ending("timeout", "late", "zeroed")) == "the agent ran out of time: late; trained with reward 0"
    )
    assert told(Ending("done", "", "trained")) == "the agent finished; trained"
    assert (
        counted({"zeroed": 2, "masked": 1, "trained": 9, "repeated": 3})
        == "1 not trained, 2 trained with reward 0"
    )
    assert counted({"trained": 9}) == ""
    assert set(NOT_AS_MEANT) < set(OUTCOMES) == set(get_args(endings.Outcome)) and set(CAUSES) == set(
        get_args(Cause)
    )


# --- the configuration
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("agent.endings.timeout=reward_zer", ("agent.endings.timeout", "did you mean reward_zero?")),
        ("agent.endings.timout=mask", ("agent.endings.timout", "did you mean")),
        ("agent.endings=mask", ("agent.endings", "")),
        ("agent.endings.limit=", ("agent.endings.limit", "")),
        ("agent.endings.done=train", ("agent.endings.done", "")),
    ],
)
def test_what_no_key_knows_is_refused(setting: str, words: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(sets=["run.name=n", setting], env={"HOME": "/h"})
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        ({"TRAJ_FILTER_ENABLE": ""}, {}),
        ({"TRAJ_FILTER_ENABLE": "True"}, {"limit": "train", "timeout": "drop", "infrastructure": "repeat"}),
        (
            {"TRAJ_FILTER_ENABLE": "False", "TRAJ_FILTER_DROP_REASONS": "timeout"},
            dict.fromkeys(("limit", "timeout", "exit", "infrastructure"), "train"),
        ),
        (
            {"TRAJ_FILTER_DROP_REASONS": "timeout, overlong"},
            {"limit": "drop", "timeout": "drop", "infrastructure": "train"},
        ),
        (
            {"TRAJ_FILTER_DROP_REASONS": "max_turns_reached,env_setup_failed"},
            {"limit": "drop", "timeout": "train", "infrastructure": "repeat"},
        ),
    ],
)
def test_liverls_filter_sets_the_key(env: Mapping[str, str], expected: dict[str, str]) -> None:
    layer, _, _ = from_environment(env)
    assert layer.problems == []
    assert {path[-1]: setting.value for path, setting in layer.settings.items()} == expected


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TRAJ_FILTER_DROP_REASONS": "timeout,overlng"}, "did you mean overlong?"),
        ({"TRAJ_FILTER_DROP_REASONS": "agent_completed"}, "unknown reason"),
        ({"TRAJ_FILTER_ENABLE": "maybe"}, "True or False"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(env: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(sets=["run.name=n"], env={"HOME": "/h", **env})
    assert words in str(caught.value) and next(iter(env)) in str(caught.value)


def test_the_file_wins_over_liverls_variables(tmp_path: Path) -> None:
    loaded = load_config(
        sets=["run.name=n", "agent.endings.timeout=mask"],
        env={"HOME": "/h", "TRAJ_FILTER_DROP_REASONS": "timeout"},
    )
    assert loaded.config.agent.endings.timeout == "mask"


# --- the counts of a step
# ---------------------------------------------------------------------------------------------


async def test_all_workers_are_counted_together(tmp_path: Path) -> None:
    one, two = (StepEndings(tmp_path / "step_0001", name, 8) for name in ("a", "b"))
    for worker in (one, two):
        for _ in range(4):
            worker.begin(again=False)
    one.end("exit 1")
    first = asyncio.ensure_future(one.shared("exit 1", 30.0))
    other = asyncio.ensure_future(one.shared("exit 2", 30.0))
    await asyncio.sleep(0)
    assert not first.done(), "the others may end in the same way"
    two.end("exit 1")
    assert await first == (2, 8) == await two.shared("exit 1", 30.0)
    for worker in (one, two):
        for _ in range(3):
            worker.end()
    assert await other is None
    assert read_step(tmp_path / "step_0001").same == {"exit 1": 2}


async def test_it_is_known_as_soon_as_it_cannot_change(tmp_path: Path) -> None:
    step = StepEndings(tmp_path / "step_0001", "a", 12)
    for _ in range(12):
        step.begin(again=False)
    for _ in range(9):
        step.end()
    step.end("exit 1")
    # Two are left: with them it would be three of twelve, which is a quarter.
    waiting = asyncio.ensure_future(step.shared("exit 1", 30.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    step.end("exit 2")
    assert await waiting is None, "two of twelve are no quarter"


class Watched(StepEndings):
    """``looks``: how often the counts of all workers were read."""

    looks = 0

    def _total(self) -> Counts:
        self.looks += 1
        return super()._total()


async def looked_twice(step: Watched, waiting: asyncio.Future[Any]) -> None:
    """Until ``waiting`` has not decided by its first look, or is done."""
    give_up = time.monotonic() + 60
    while step.looks < 2 and not waiting.done():
        assert time.monotonic() < give_up, "it looks once"
        await asyncio.sleep(0.01)


async def test_trials_that_have_not_begun_are_waited_for(tmp_path: Path) -> None:
    step = Watched(tmp_path / "step_0001", "a", 4)
    step.begin(again=False)
    step.end("exit 1")
    waiting = asyncio.ensure_future(step.shared("exit 1", 30.0))
    await looked_twice(step, waiting)
    assert not waiting.done()
    for same in ("exit 1", "", ""):
        step.begin(again=False)
        step.end(same)
    assert await waiting == (2, 4)


async def test_trials_that_do_not_begin_for_a_while_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds; the clock is moved on here."""
    now = time.monotonic
    for passed, decided in ((9.0, False), (10.5, True)):
        step = Watched(tmp_path / f"step_{passed}", "a", 4)
        step.begin(again=False)
        step.end("exit 1")
        with monkeypatch.context() as patch:
            patch.setattr(step_endings, "time", SimpleNamespace(monotonic=lambda more=passed: now() + more))
            waiting = asyncio.ensure_future(step.shared("exit 1", 30.0))
            await looked_twice(step, waiting)
            assert waiting.done() is decided
            if decided:
                assert await waiting is None
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    step = StepEndings(tmp_path / "step_0001", "a", 4)
    for _ in range(4):
        step.begin(again=False)  # of a worker that was killed: they never end
    step.end("exit 1")
    assert await step.shared("exit 1", 0.1) is None


async def test_a_validation_and_a_full_disk_fail_no_trial(tmp_path: Path) -> None:
    nowhere = of_step(tmp_path, "", "w", 8)
    (tmp_path / "file").touch()
    broken = StepEndings(tmp_path / "file" / "step_0001", "w", 2)
    for step in (nowhere, broken):
        step.begin(again=False)
        step.end("exit 1")
        step.tell(Ending("exit", "x", "masked"), {"ending": 3}, 1, None)
        assert await step.shared("exit 1", 5.0) is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_step_is_counted_where_verls_processes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVERL_ENDINGS", str(tmp_path / "attempt_002" / "endings" / "3"))
    step = of_step(tmp_path / "attempt_002", "step_0007", "worker-a", 8)
    assert step is of_step(tmp_path / "attempt_002", "step_0007", "worker-a", 8)
    step.begin(again=False)
    assert (tmp_path / "attempt_002" / "endings" / "3" / "step_0007" / "worker-a.json").is_file()


@pytest.mark.parametrize(("generation", "folder"), [(None, "1"), ("4", "4")])
def test_a_step_is_counted_in_the_attempt_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: str | None, folder: str
) -> None:
    monkeypatch.delenv("LIVERL_ENDINGS", raising=False)
    monkeypatch.delenv("LIVERL_GENERATION", raising=False)
    if generation is not None:
        monkeypatch.setenv("LIVERL_GENERATION", generation)
    attempt = tmp_path / "attempt_002"
    step = of_step(attempt, "step_0007", "worker-a", 8)
    assert step is not of_step(attempt, "step_0008", "worker-a", 8)
    assert step is not of_step(attempt, "step_0007", "worker-b", 8)
    step.begin(again=False)
    step.tell(Ending("done", "", "trained"), {"length": 2, "split": 3}, 4, 0.5)
    step.tell(Ending("exit", "", "repeated"), {"length": 5}, 0, None)
    counts = read_step(attempt / "endings" / folder / "step_0007")
    assert counts == Counts(
        trials=1,
        begun=1,
        causes={"done": 1},
        outcomes={"trained": 1, "repeated": 1},
        not_trained={"length": 7, "split": 3},
        asides=4,
        rewarded=1,
        rewards=0.5,
    )


# --- verl's metrics
# ---------------------------------------------------------------------------------------------------


class Tracking:
    """verl's class, as far as it is used."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, Any], int, Any]] = []

    def log(self, data: dict[str, Any], step: int, backend: Any = None) -> None:
        self.logged.append((data, step, backend))


def metrics(**numbers: int) -> dict[str, float]:
    return {f"liverl/{name.replace('__', '/')}": number for name, number in numbers.items()}


def nonzero(data: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in data.items() if name.startswith("liverl/") and value}


def test_each_trial_is_in_the_metrics_of_one_step(tmp_path: Path) -> None:
    class Own(Tracking):
        pass

    wrap(Own, StepMetrics(tmp_path))
    tracking = Own()
    one, two = (StepEndings(tmp_path / "step_0001", name, 0) for name in ("a", "b"))
    tracking.log({"val-core/x": 1.0}, 0)
    one.tell(Ending("done", "", "trained"), {"aside": 5}, 1, 1.0)
    two.tell(Ending("timeout", "late", "zeroed"), {"length": 2, "aside": 1}, 2, 0.0)
    two.tell(Ending("infrastructure", "gone", "repeated"), {"ending": 7}, 0, 0.5)
    tracking.log(data={"training/global_step": 1, "actor/lr": 0.1}, step=1)
    two.tell(
        Ending("infrastructure", "gone", "masked"), {"ending": 3}, 0, 0.5
    )  # it ended after its step was logged
    StepEndings(tmp_path / "step_0002", "a", 0).tell(Ending("limit", "turns", "trained"), {}, 0, 0.25)
    tracking.log({"training/global_step": 2}, step=2, backend="file")
    StepEndings(tmp_path / "step_0004", "a", 0).tell(Ending("done", "", "trained"), {}, 0, 0.75)
    tracking.log({"training/global_step": 3}, 3)
    first, second, third = (data for data, _, _ in tracking.logged[1:])
    assert tracking.logged[0] == ({"val-core/x": 1.0}, 0, None), (
        "a validation before the first step has no trials"
    )
    assert [(step, backend) for _, step, backend in tracking.logged[1:]] == [
        (1, None),
        (2, "file"),
        (3, None),
    ]
    assert first["actor/lr"] == 0.1
    assert nonzero(first) == metrics(
        endings__done=1, endings__timeout=1, endings__trained=1, endings__zeroed=1, endings__repeated=1,
        not_trained__aside=6, not_trained__length=2, not_trained__ending=7, asides=3, reward__mean=0.5,
    )  # fmt: skip
    assert nonzero(second) == metrics(
        endings__infrastructure=1,
        endings__limit=1,
        endings__masked=1,
        endings__trained=1,
        not_trained__ending=3,
        reward__mean=0.25,
    )
    # The trial is of a step that is trained later: the step that is logged was trained on others.
    assert nonzero(third) == metrics(endings__done=1, endings__trained=1)
    StepEndings(tmp_path / "step_0005", "a", 0).tell(Ending("done", "", "trained"), {}, 0, 0.75)
    tracking.log({"training/global_step": 5, "fully_async/count/x": 1}, 5)
    queued = metrics(endings__done=1, endings__trained=1)
    assert nonzero(tracking.logged[-1][0]) == queued, "nor is it known of one that takes trials from a queue"
    assert {f"liverl/endings/{name}" for name in (*CAUSES, *OUTCOMES)} <= third.keys(), (
        "a series has no holes"
    )


def test_a_fault_of_a_count_fails_no_step(tmp_path: Path) -> None:
    class Own(Tracking):
        pass

    class Broken(StepMetrics):
        def take(self, step: int) -> dict[str, float]:
            raise ValueError("x")

    wrap(Own, Broken(tmp_path))
    tracking = Own()
    tracking.log({"training/global_step": 1}, 1)
    assert tracking.logged == [({"training/global_step": 1}, 1, None)]


def test_damaged_counts_are_passed_over(tmp_path: Path) -> None:
    step = StepEndings(tmp_path / "step_0001", "a", 0)
    step.tell(Ending("done", "", "trained"), {}, 0, None)
    (tmp_path / "step_0001" / "b.json").write_text('{"trials": ')
    (tmp_path / "step_x").mkdir()
    assert nonzero(StepMetrics(tmp_path).take(1)) == metrics(endings__done=1, endings__trained=1)
    assert nonzero(StepMetrics(tmp_path / "none").take(1)) == {}


@given(
    st.lists(
        st.builds(
            Counts,
            trials=st.integers(0, 9),
            causes=st.dictionaries(st.sampled_from(["done", "exit"]), st.integers(0, 9)),
        ),
        max_size=4,
    )
)
def test_counts_add_up(several: list[Counts]) -> None:
    total = together(several)
    assert total.trials == sum(each.trials for each in several)
    assert metrics_of(total)["liverl/endings/exit"] == sum(each.causes.get("exit", 0) for each in several)


# --- what is exchanged with verl's worker
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("said", [True, False])
async def test_verls_worker_tells_a_validation(said: bool) -> None:
    async def run() -> bool | None:
        await asyncio.sleep(0)
        return validates()

    async def worker(trajectory: dict[str, Any]) -> bool | None:
        return await run()

    assert await asyncio.create_task(worker({"validate": said, "step": 1})) is said


async def test_another_worker_tells_none() -> None:
    async def run(trajectory: Any) -> bool | None:
        return validates()

    assert await asyncio.create_task(run("a path")) is None


@pytest.mark.parametrize(
    ("versions", "validation", "expected"),
    [((4, 6), False, (4, 6)), ((5, 5), False, (5, 5)), (None, False, (2, 2)), (None, True, (3, 3))],
)
def test_versions_of_a_row_are_the_lowest_and_the_highest(
    versions: Any, validation: bool, expected: tuple[int, int], tmp_path: Path
) -> None:
    prompt = Prompt("chat", "x", {}, [], 3, validation, "u", 0, {})
    step = StepEndings(None, "w", 0)
    files: Any = None
    ending = Ending("done", "", "trained")
    outcome = Outcome("t", [], 1.0, 2, 0, 0, 0, "reply", 0.0, 0.0, None, files, ending, {}, 0, step)
    fields = extra_fields(prompt, outcome, Row([1], [2], [1], [0.0], versions=versions))
    assert (fields["min_global_steps"], fields["max_global_steps"]) == expected
    assert fields["global_steps"] == expected[1]


def test_tokens_that_break_a_row_through_litellm_are_counted() -> None:
    assembly = Assembly()
    assembly.add([1, 2], [3, 4], [0.0, 0.0])
    assembly.add([1, 2, 3, 4, 5], [6], [0.0])
    assert (assembly.sampled, assembly.kept) == (3, 3)
    assembly.add([1, 9], [7, 7], [0.0, 0.0])
    assert (assembly.sampled, assembly.kept) == (5, 3)


def test_rows_without_an_index_have_longer_names() -> None:
    settings = LoopSettings("/r", "/r/attempt_001", "m", 9, 9)
    from liverl.verl_runtime.loop_trial import read_prompt

    row = {"raw_prompt": [], "global_steps": 1, "uid": "u", "session_id": 0, "index": 0}
    for extra, digits in (({"index": 0}, 8), ({}, 16)):
        prompt = read_prompt({**row, "extra_info": extra}, {}, settings)
        assert len(prompt.name().rpartition("-")[2]) == digits
        assert len({prompt.name(0, taken) for taken in range(3)} | {prompt.name(1)}) == 4


@pytest.mark.parametrize(
    ("config", "row", "expected"),
    [
        (
            {"reward": {"custom_reward_function": {"path": "/w/r.py", "name": "score"}}},
            {"reward_model": {"ground_truth": "18"}},
            {"function": "r.py:score", "ground_truth": "18"},
        ),
        (
            {"reward": {"custom_reward_function": {"path": None, "name": "compute_score"}}},
            {"data_source": "openai/gsm8k", "reward_model": None},
            {"function": "verl's function for data_source openai/gsm8k"},
        ),
        ({}, {"data_source": "a"}, {"function": "verl's function for data_source a"}),
        (object(), {}, {"function": "verl's function for data_source None"}),
    ],
)
def test_a_result_says_which_function_gives_the_reward(
    config: Any, row: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert reward_from(config, row) == {"reward_from": expected}


def test_the_result_has_the_rewards_of_tools_where_there_are_any() -> None:
    assert rewards_of_tools({"tool_rewards": (0.25, 0)}) == {"tool_rewards": [0.25, 0]}
    assert rewards_of_tools({"tool_rewards": []}) == rewards_of_tools({}) == {}
