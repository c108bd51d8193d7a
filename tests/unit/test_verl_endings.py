"""What becomes of a trial, by who caused its end: real agents of each kind, real sessions, and each value of
``agent.endings``. The expectations stand in the tables, not in the code under test."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text

from liverl.agents.endings import Endings, Treatment, told
from liverl.agents.kinds import AgentSettings
from liverl.agents.loop import TrialFailed
from liverl.observe.trials.records import parse_result
from liverl.observe.trials.tallies import StepTallies
from liverl.observe.trials.trajectory import read_trajectory
from liverl.observe.trials.trial import Trial
from liverl.verl_runtime.kinds import KINDS, harbor
from liverl.verl_runtime.kinds.base import Kind, Result, Rules
from liverl.verl_runtime.kinds.harbor_runner import Ended, RunnerDied
from liverl.verl_runtime.loop_trial import Outcome
from liverl_tui.text.facts import untrained
from liverl_tui.widgets.trajectory.head import header_rows

pytestmark = pytest.mark.drill

VALUES: tuple[Treatment, ...] = get_args(Treatment)


def script(_prompt: str, turn: int) -> str:
    return f"reply {turn}"


# --- what each value does
# ---------------------------------------------------------------------------------------------

# Value -> (outcome, whether there are rows, what verl gets as reward: own = the agent's).
FOLLOWS: dict[str, tuple[str, bool, str]] = {
    "train": ("trained", True, "own"),
    "reward_zero": ("zeroed", True, "zero"),
    "mask": ("masked", False, "own"),
    "drop": ("dropped", False, "own"),
    "repeat": ("masked", False, "own"),  # after its last repeat
}


def check(
    run: Trials, outcome: Outcome, replica: TokenReplica, cause: str, follows: str, own: float | None
) -> None:
    """The rows, the reward, the files and the counts of a trial agree."""
    what, has_rows, reward = FOLLOWS[follows]
    assert (outcome.ending.cause, outcome.ending.outcome) == (cause, what), outcome.ending
    assert bool(outcome.rows) is has_rows
    assert 0 <= outcome.tool_seconds < 600 and 0 <= outcome.asked_seconds < 600
    expected = 0.0 if reward == "zero" or (own is None and not has_rows) else own
    assert outcome.reward == (None if what == "dropped" else expected)
    trained = sum(sum(row.mask) for row in outcome.rows)
    sampled = sum(map(len, replica.replies[-sampled_of(outcome) :])) if sampled_of(outcome) else 0
    assert trained + sum(outcome.not_trained.values()) == sampled, (outcome.not_trained, sampled)
    assert ("ending" in outcome.not_trained) is (not has_rows and sampled > 0)
    if not outcome.recorded:
        assert outcome.reward is None
        outcome.record(0.75)
    result = run.result(outcome)
    assert (result["ending"]["cause"], result["ending"]["outcome"]) == (cause, what)
    assert (result["tokens_trained"], result["not_trained"]) == (trained, outcome.not_trained)
    verdict = result["verifier_result"]
    if what == "dropped":
        assert verdict is None and result["ending"]["reward"] == expected
    elif own is None and what == "masked":
        assert verdict is None, "nobody gave it a reward"
    else:
        assert verdict is not None
    assert (result["exception_info"] is None) is (cause in ("done", "limit"))


def sampled_of(outcome: Outcome) -> int:
    """How many replies the trial got, by its session's document."""
    document = outcome.files.directory / "proxy_trajectory.json"
    return int(json.loads(document.read_text())["counters"].get("num_calls", 0)) if document.exists() else 0


# --- programs
# ---------------------------------------------------------------------------------------------------------

ASK = """
import json, os, pathlib, signal, sys, time, urllib.request
E = os.environ
def ask(messages):
    body = json.dumps({"model": E["OPENAI_MODEL"], "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + E["OPENAI_API_KEY"]}
    request = urllib.request.Request(E["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())["choices"][0]["message"]
def talk(n, say="go on"):
    said = list(Q)
    for _ in range(n):
        said += [ask(said), {"role": "user", "content": say}]
def reward(value):
    pathlib.Path(E["LIVERL_REWARD"]).write_text(str(value))
Q = json.loads(pathlib.Path(E["LIVERL_TASK"]).read_text())["messages"]
"""
# Ending -> (text of the program, settings of the run, cause). All have written a reward before, as an agent may.
PROGRAMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "exits 1": ("talk(1); sys.exit(1)", {}, "exit"),
    "signal 15": ("talk(1); os.kill(os.getpid(), 15)", {}, "exit"),
    "exits 126": ("talk(1); sys.exit(126)", {}, "infrastructure"),
    "exits 127": ("talk(1); sys.exit(127)", {}, "infrastructure"),
    "aborts": ("talk(1); os.abort()", {}, "infrastructure"),
    "exits 137": ("talk(1); sys.exit(137)", {}, "infrastructure"),
    "is killed": ("talk(1); os.kill(os.getpid(), 9)", {}, "infrastructure"),
    "segmentation fault": ("talk(1); os.kill(os.getpid(), 11)", {}, "infrastructure"),
    "exits before the first reply": ("sys.exit(1)", {}, "infrastructure"),
    "asks nothing": ("pass", {}, "infrastructure"),
    "times out": ("talk(1); signal.pause()", {"trial_timeout": 1.5}, "timeout"),
    "times out before the first reply": ("signal.pause()", {"trial_timeout": 1.5}, "infrastructure"),
    "out of turns": ("talk(3)", {"max_turns": 2}, "limit"),
    "out of turns, caught": ("\ntry: talk(3)\nexcept OSError: pass", {"max_turns": 2}, "limit"),
    "out of turns, then aborts": ("\ntry: talk(3)\nexcept OSError: os.abort()", {"max_turns": 2}, "limit"),
    "out of tokens": ("talk(9)", {"response_length": 60}, "limit"),
    "out of context": ("talk(2, 'x' * 9000)", {}, "limit"),
    "out of tokens, caught": ("\ntry: talk(9)\nexcept OSError: pass", {"response_length": 60}, "limit"),
    "out of context, caught": ("\ntry: talk(2, 'x' * 9000)\nexcept OSError: pass", {}, "limit"),
}
CASES = [(name, value) for name in PROGRAMS for value in VALUES]


@pytest.mark.parametrize(("name", "value"), CASES)
async def test_programs(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, name: str, value: Treatment
) -> None:
    text, settings, cause = PROGRAMS[name]
    run = Trials(tmp_path, host, {})
    replied = "talk" in text
    words = run.script("agent", f"{ASK}reward(0.5)\n{text}")
    run.agent = AgentSettings(command=words, endings=Endings(**{cause: value}))
    outcome = await run.run(**settings)
    assert outcome.tool_seconds > 0
    follows = value if replied or value == "drop" else "mask"  # without a token there is nothing to train
    check(run, outcome, replica, cause, follows, 0.5 if replied else None)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", ["exits 1", "signal 15", "times out", "out of turns", "out of context"])
async def test_the_reward_of_a_verifier_wins(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, name: str, value: Treatment
) -> None:
    text, settings, cause = PROGRAMS[name]
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(
        command=run.script("agent", f"{ASK}reward(0.9)\n{text}"),
        verifier=run.script("verifier", f"{ASK}reward(0.25)"),
        endings=Endings(**{cause: value}),
    )
    outcome = await run.run(**settings)
    check(run, outcome, replica, cause, "train", 0.25)
    assert run.result(outcome)["ending"]["verified"] is True


@pytest.mark.parametrize("name", ["exits 137", "exits before the first reply"])
async def test_no_verifier_judges_what_the_infrastructure_ended(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, name: str
) -> None:
    text, settings, _ = PROGRAMS[name]
    run = Trials(tmp_path, host, {})
    words = run.script("agent", ASK + text)
    run.agent = AgentSettings(command=words, verifier=run.script("verifier", f"{ASK}reward(0.25)"))
    check(run, await run.run(**settings), replica, "infrastructure", "mask", None)


@pytest.mark.parametrize(
    ("verifier", "cause", "words"),
    [
        ("sys.exit(2)", "exit", "VerifierFailedError"),
        ("sys.exit(137)", "infrastructure", "VerifierFailedError"),
        ("pass", "exit", "RewardError"),
        ("reward('good')", "exit", "RewardError"),
        ("reward('nan')", "exit", "RewardError"),
        ("reward([1])", "exit", "RewardError"),
        ("reward('1e999')", "exit", "RewardError"),
    ],
)
@pytest.mark.parametrize("agent", ["talk(1)", "talk(3)"])  # ends well, or runs out of turns
async def test_a_verifier_that_fails(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    verifier: str,
    cause: str,
    words: str,
    agent: str,
) -> None:
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(
        command=run.script("agent", ASK + agent), verifier=run.script("verifier", ASK + verifier)
    )
    outcome = await run.run(max_turns=2)
    check(run, outcome, replica, cause, "mask", None)
    assert (outcome.exception or "").startswith(words) and words in outcome.ending.why


@pytest.mark.parametrize("bad", ["'good'", "'nan'", "[1]", "'-inf'", "''"])
async def test_a_reward_that_is_no_number_costs_its_trial_alone(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, bad: str
) -> None:
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(command=run.script("agent", f"{ASK}talk(1)\nreward({bad})"))
    outcome = await run.run()
    check(run, outcome, replica, "exit", "mask", None)
    assert "expected a finite number" in (outcome.exception or "")


async def test_a_compacted_conversation_that_ends_well_has_finished(
    tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    """Its prompt was too long once, which is no limit that has ended it."""
    run = Trials(tmp_path, host, {})
    text = "\ntry: talk(2, 'x' * 9000)\nexcept OSError: pass\ntalk(1); reward(1)"
    run.agent = AgentSettings(command=run.script("agent", ASK + text), endings=Endings(limit="mask"))
    outcome = await run.run()
    assert (outcome.ending.cause, outcome.ending.outcome, outcome.reward) == ("done", "trained", 1.0)


# --- classes
# ----------------------------------------------------------------------------------------------------------

CLASSES: dict[str, tuple[str, dict[str, Any], str, bool]] = {
    # ending -> body of ``run``, settings, cause, whether it returns its reward of 0.5
    "raises": ("await chat(Q)\nraise KeyError('x')", {}, "exit", False),
    "raises a time-out of its own": ("await chat(Q)\nraise TimeoutError", {}, "exit", False),
    "exits": ("await chat(Q)\nraise SystemExit(1)", {}, "exit", False),
    "raises before the first reply": ("raise KeyError('x')", {}, "infrastructure", False),
    "asks nothing": ("return 0.5", {}, "infrastructure", False),
    "times out": ("await chat(Q)\nawait asyncio.Event().wait()", {"trial_timeout": 1.5}, "timeout", False),
    "out of turns": ("await talk(3)", {"max_turns": 2}, "limit", False),
    "out of turns, caught": (
        "try:\n    await talk(3)\nexcept Exception:\n    return 0.5",
        {"max_turns": 2},
        "limit",
        True,
    ),
    "out of turns, raised otherwise": (
        "try:\n    await talk(3)\nexcept Exception:\n    raise ValueError",
        {"max_turns": 2},
        "limit",
        False,
    ),
    "out of context": ("await talk(2, 'x' * 9000)", {}, "limit", False),
    "out of tokens": ("await talk(9)", {"response_length": 60}, "limit", False),
    "asks for what is refused": ("await chat(Q)\nawait chat('no messages')", {}, "exit", False),
    "returns a text": ("await chat(Q)\nreturn 'good'", {}, "exit", False),
    "returns NaN": ("await chat(Q)\nreturn float('nan')", {}, "exit", False),
    "returns a list": ("await chat(Q)\nreturn [1]", {}, "exit", False),
}
BODY = """\
import asyncio
class Agent:
    async def run(self, task, chat, dir):
        Q = task["messages"]
        async def talk(n, say="go on"):
            said = list(Q)
            for _ in range(n):
                said += [await chat(said), {"role": "user", "content": say}]
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Callable[[str], str]:
    """``module:Class`` of a class with this body of ``run``."""
    name = "ends_" + re.sub(r"\W", "_", request.node.name)
    monkeypatch.syspath_prepend(tmp_path)

    def write(body: str) -> str:
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        (tmp_path / f"{name}.py").write_text(BODY + lines)
        return f"{name}:Agent"

    return write


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in CLASSES for value in VALUES])
async def test_classes(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    written: Callable[[str], str],
    name: str,
    value: Treatment,
) -> None:
    body, settings, cause, rewarded = CLASSES[name]
    run = Trials(tmp_path, host, {"python": written(body), "endings": Endings(**{cause: value})})
    outcome = await run.run(**settings)
    replied = "chat" in body or "talk" in body
    check(
        run,
        outcome,
        replica,
        cause,
        value if replied or value == "drop" else "mask",
        0.5 if rewarded else None,
    )


# --- conversations that liverl leads
# ----------------------------------------------------------------------------------


class Adds:
    """A tool. ``then``: what its first answer does."""

    definitions: Sequence[dict[str, Any]] = (
        {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}},
    )
    last = ""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.then = then

    def begin(self, messages: list[dict[str, Any]]) -> None:
        pass

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        self.then()
        return "5"

    def not_called(self, name: str) -> None:
        pass


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    ("ending", "settings", "cause"),
    [
        ("calls", {"max_turns": 2}, "limit"),
        ("calls", {"response_length": 80}, "limit"),
        ("hangs", {"trial_timeout": 1.0}, "timeout"),
        ("is lost", {"trial_timeout": 1.0}, "infrastructure"),
    ],
)
async def test_conversations_with_tools(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    value: Treatment,
    ending: str,
    settings: dict[str, Any],
    cause: str,
) -> None:
    replica.reply = lambda _prompt, _turn: call_text("add")
    lost = {"/inference/v1/generate": (500, {"error": {"message": "down"}})}
    then = {
        "calls": lambda: None,
        "hangs": replica.gate.clear,
        "is lost": lambda: replica.refusals.update(lost),
    }[ending]
    run = Trials(tmp_path, host, {"endings": Endings(**{cause: value})})
    outcome = await run.run(tools=Adds(then), **settings)
    replica.gate.set()
    check(run, outcome, replica, cause, value, None)


async def test_a_reply_that_calls_no_tool_and_a_chat_have_finished(
    tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    run = Trials(
        tmp_path, host, {"endings": Endings(limit="drop", timeout="drop", exit="drop", infrastructure="drop")}
    )
    for tools in (Adds(), None):
        outcome = await run.run(tools=tools, max_turns=1)
        check(run, outcome, replica, "done", "train", None)


@pytest.mark.parametrize("counter", ["replica_lost", "poisoned"])
@pytest.mark.parametrize("text", ["talk(1)", "talk(1); sys.exit(1)", "talk(1); signal.pause()"])
async def test_what_the_session_lost_is_no_agents_fault(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    monkeypatch: pytest.MonkeyPatch,
    counter: str,
    text: str,
) -> None:
    real = host.store.finish

    async def finish(session: str) -> Any:
        result = await real(session)
        setattr(result.counters, counter, 1)
        return result

    monkeypatch.setattr(host.store, "finish", finish)
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(command=run.script("agent", ASK + text))
    check(run, await run.run(trial_timeout=1.5), replica, "infrastructure", "mask", None)


async def test_no_replica_answers(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.store, "_patience", 0.2)
    replica.failures = [500] * 1000
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(command=run.script("agent", f"{ASK}talk(1)"))
    outcome = await run.run()
    assert (outcome.ending.cause, outcome.rows) == ("infrastructure", [])


# --- repeats
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "then"), [("infrastructure", "sys.exit(137)"), ("exit", "sys.exit(1)")])
@pytest.mark.parametrize(("fails", "retries"), [(1, 2), (2, 2), (3, 2), (1, 0)])
async def test_a_trial_is_run_again_as_often_as_it_may(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, cause: str, then: str, fails: int, retries: int
) -> None:
    """Each time with a directory and a session of its own; earlier attempts are kept and say what became of them."""
    count = tmp_path / "count"
    text = f"""
p = pathlib.Path({str(count)!r})
n = len(p.read_text()) if p.exists() else 0
p.write_text('x' * (n + 1))
talk(1)
if n < {fails}: {then}
reward(1)
"""
    run = Trials(tmp_path, host, {})
    run.agent = AgentSettings(command=run.script("agent", ASK + text), endings=Endings(**{cause: "repeat"}))
    outcome = await run.run(max_retries=retries)
    well = fails <= retries
    assert (outcome.ending.cause, outcome.ending.outcome) == (
        ("done", "trained") if well else (cause, "masked")
    )
    assert (bool(outcome.rows), outcome.reward) == ((True, 1.0) if well else (False, 0.0))
    files = list((tmp_path / "trials").glob("*/*/result.json"))
    facts = [json.loads((path.parent / "liverl.json").read_text()) for path in files]
    first = next(path.parent.name for path, said in zip(files, facts, strict=True) if "repeat" not in said)
    assert sorted((said["repeat"], said["repeat_of"]) for said in facts if "repeat" in said) == [
        (number, first) for number in range(1, min(fails, retries) + 1)
    ]
    results = [json.loads(path.read_text()) for path in files]
    outcomes = sorted(result["ending"]["outcome"] for result in results)
    repeats = min(fails, retries)
    assert outcomes == sorted([*["repeated"] * repeats, "trained" if well else "masked"])
    assert sum(result.get("repeated") is True for result in results) == repeats
    own = outcome.counts._own
    assert own.outcomes == {name: outcomes.count(name) for name in set(outcomes)}
    assert own.causes == {"done" if well else cause: 1} and (own.trials, own.begun) == (1, repeats + 1)
    lost = sum(result["not_trained"].get("ending", 0) for result in results)
    assert own.not_trained.get("ending", 0) == lost
    trained = sum(sum(row.mask) for row in outcome.rows)
    assert trained + lost == sum(map(len, replica.replies))


# --- a quarter of a step
# ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "causes"),
    [
        # Seven trials: two of one ending are a quarter, one is not.
        (["sys.exit(1)"] * 2 + [""] * 5, ["infrastructure"] * 2 + ["done"] * 5),
        (["sys.exit(1)", "sys.exit(2)", *[""] * 5], ["exit"] * 2 + ["done"] * 5),
        (["sys.exit(1)"] * 2 + [""] * 7, ["exit"] * 2 + ["done"] * 7),
        (["sys.exit(1)"] * 3 + [""] * 7, ["infrastructure"] * 3 + ["done"] * 7),
        (["talk(9)"] * 7, ["limit"] * 7),  # the session knows that the policy caused it
        (["signal.pause()"] * 2 + [""] * 3, ["infrastructure"] * 2 + ["done"] * 3),
    ],
)
async def test_endings_that_a_quarter_of_a_step_shares(
    tmp_path: Path, host: SessionHost, replica: TokenReplica, texts: list[str], causes: list[str]
) -> None:
    """Whichever of them ends first: all wait until the step knows."""
    run = Trials(tmp_path, host, {})
    rows = [run.script(f"agent{n}", f"{ASK}talk(1)\n{text}") for n, text in enumerate(texts)]
    seconds = 5.0 if "signal.pause()" in texts else 60.0  # on a busy machine a program takes its time

    async def one(n: int) -> Outcome:
        own = Trials(tmp_path, host, {"command": rows[n]})
        return await own.run(max_turns=4, trial_timeout=seconds, step_trials=len(texts))

    outcomes = await asyncio.gather(*(one(n) for n in range(len(texts))))
    assert [outcome.ending.cause for outcome in outcomes] == causes
    why = {outcome.ending.cause: outcome.ending.why for outcome in outcomes}
    if "infrastructure" in causes:
        number = causes.count("infrastructure")
        assert why["infrastructure"].startswith(
            f"{number} of the {len(texts)} trials of its step ended in the same way"
        )


async def test_a_trial_has_ended_before_it_waits_for_how_others_end(
    tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    """What it waits for is no time of its agent, and its error was not raised behind it."""
    gate = tmp_path / "gate"
    stays = f"{ASK}talk(1)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\nsys.exit(2)"
    run = Trials(tmp_path, host, {})
    rows = [run.script("ends", f"{ASK}talk(1); sys.exit(1)"), run.script("stays", stays)]

    async def one(words: tuple[str, str]) -> Outcome:
        own = Trials(tmp_path, host, {"command": words})
        return await own.run(max_turns=4, trial_timeout=60.0, step_trials=2)

    ends, stays_ = asyncio.ensure_future(one(rows[0])), asyncio.ensure_future(one(rows[1]))

    def counts() -> list[dict[str, Any]]:
        files = (tmp_path / "attempt_001").rglob("worker-*.json")
        return [json.loads(file.read_text()) for file in files]

    deadline = time.monotonic() + 60.0
    while not (ends.done() or any(each.get("ended") for each in counts())):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    ended, released = time.time(), gate.write_text("")
    result = run.result(await ends)
    await stays_
    assert released == 0
    for stamp in (result["finished_at"], result["exception_info"]["occurred_at"]):
        assert datetime.fromisoformat(stamp).timestamp() <= ended


# --- Harbor
# -----------------------------------------------------------------------------------------------------------

HARBORS: list[tuple[Ended | Exception, str, bool, float | None]] = [
    # how Harbor ends it, cause, verified, reward
    (Ended(rewards={"reward": 0.5}), "done", True, 0.5),
    (Ended(), "done", False, None),
    (Ended(exception=("AgentTimeoutError", "x")), "timeout", False, None),
    (Ended(exception=("AgentTimeoutError", "x"), rewards={"reward": 0.0}), "timeout", True, 0.0),
    (
        Ended(exception=("NonZeroAgentExitCodeError", "Command failed (exit 1)"), retry=True),
        "exit",
        False,
        None,
    ),
    (
        Ended(exception=("NonZeroAgentExitCodeError", "exit code 137"), retry=True),
        "infrastructure",
        False,
        None,
    ),
    (Ended(exception=("NonZeroAgentExitCodeError", "?"), retry=True), "exit", False, None),
    # A reward that its verifier wrote wins over the retry.
    (
        Ended(exception=("DaytonaError", "gone"), retry=True, rewards={"reward": 1.0}),
        "infrastructure",
        True,
        1.0,
    ),
    (Ended(exception=("DaytonaError", "gone"), retry=True), "infrastructure", False, None),
    (Ended(exception=("RewardFileNotFoundError", "none")), "exit", False, None),
    (Ended(exception=("VerifierTimeoutError", "late")), "exit", False, None),
    (Ended(rewards={"a": 1.0, "b": 0.0}), "exit", False, None),
    (Ended(exception=("ValueError", "no task"), begun=False), "infrastructure", False, None),
    (Ended(cancelled=True), "timeout", False, None),
    (RunnerDied("Harbor's process was ended by signal 9"), "infrastructure", False, None),
]


@pytest.mark.parametrize(("ended", "cause", "verified", "reward"), HARBORS)
async def test_harbors_endings(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    monkeypatch: pytest.MonkeyPatch,
    ended: Ended | Exception,
    cause: str,
    verified: bool,
    reward: float | None,
) -> None:
    """Harbor's process is scripted; the session and the reply are real."""
    verifies = ended != Ended()  # that is what Harbor says without a verifier

    async def as_harbor(trial: Any, carrier: Any, conversation: Any) -> Result:
        await KINDS["chat"].run(trial, carrier, conversation)
        if isinstance(ended, Exception):
            raise TrialFailed("HarborRunnerError", str(ended))
        if ended.cancelled:
            raise TrialFailed("TrialTimeoutError", "late", "timeout", same="timeout")
        return harbor._result(conversation, ended, verifies=verifies)

    monkeypatch.setitem(KINDS, "double", Kind(as_harbor, story=False))
    outcome = await Trials(tmp_path, host, {}).run(named="double")
    assert (outcome.ending.cause, outcome.ending.verified) == (cause, verified), outcome.ending
    trains = verified or cause == "done"
    expected = "trained" if trains else "zeroed" if cause == "timeout" else "masked"
    assert outcome.ending.outcome == expected
    assert outcome.reward == (reward if trains else 0.0)


RAISED = ("HTTPError", "HTTP Error 410: Gone")
# How Harbor ends an agent that its session refused, whether there is a verifier -> what becomes of it, the reward.
REFUSED: list[tuple[Ended, bool, tuple[str, str], float | None]] = [
    (Ended(exception=RAISED, retry=True, rewards={"reward": 0.5}), True, ("limit", "trained"), 0.5),
    (Ended(exception=RAISED, retry=True, rewards={"reward": 0.0}), True, ("limit", "trained"), 0.0),
    (Ended(rewards={"reward": 1.0}), True, ("limit", "trained"), 1.0),  # it took the refusal for its end
    # The tests say nothing of it. verl is not asked: it has no function for rows of Harbor's.
    (Ended(exception=RAISED, retry=True), True, ("exit", "masked"), 0.0),
    (Ended(exception=RAISED, retry=True, rewards={"a": 1.0, "b": 0.0}), True, ("exit", "masked"), 0.0),
    (Ended(exception=("VerifierTimeoutError", "late")), True, ("exit", "masked"), 0.0),
    (Ended(), True, ("exit", "masked"), 0.0),
    # There are no tests: then verl is asked.
    (Ended(exception=RAISED, retry=True), False, ("limit", "trained"), None),
    (Ended(), False, ("limit", "trained"), None),
]


@pytest.mark.parametrize(
    ("rules", "settings", "limit"),
    [
        (Rules(60.0), {"max_turns": 2}, "max_iterations"),
        (Rules(60.0, max_consecutive_no_tool=2), {}, "max_consecutive_no_tool"),
    ],
)
@pytest.mark.parametrize(("ended", "verifies", "becomes", "reward"), REFUSED)
async def test_an_agent_of_harbors_that_its_session_refuses(
    tmp_path: Path,
    host: SessionHost,
    replica: TokenReplica,
    monkeypatch: pytest.MonkeyPatch,
    rules: Rules,
    settings: dict[str, Any],
    limit: str,
    ended: Ended,
    verifies: bool,
    becomes: tuple[str, str],
    reward: float | None,
) -> None:
    """It is at its limit and not repeated, and only the task's tests reward it, if there are any. Harbor's process is
    scripted; the session refuses for real."""

    async def as_harbor(trial: Any, carrier: Any, conversation: Any) -> Result:
        points, asked = trial.line.endpoints, list(trial.messages)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {points.key}"}) as http:
            for _ in range(4):
                body = {"model": "m", "messages": asked}
                async with http.post(f"{points.openai}/chat/completions", json=body) as answer:
                    if answer.status == 410:
                        return harbor._result(conversation, ended, verifies=verifies)
                    asked += [
                        (await answer.json())["choices"][0]["message"],
                        {"role": "user", "content": "go on"},
                    ]
        raise AssertionError("it is refused")

    double = Kind(as_harbor, story=False, rules=lambda agent, timeout: rules)
    monkeypatch.setitem(KINDS, "double", double)
    outcome = await Trials(tmp_path, host, {}).run(named="double", max_retries=2, **settings)
    assert (outcome.ending.cause, outcome.ending.outcome) == becomes
    assert outcome.reward == reward and outcome.recorded is (reward is not None)
    assert len(list((tmp_path / "trials").glob("*/*"))) == 1 and len(replica.replies) == 2
    trained = becomes[1] == "trained"
    assert sum(row.turns for row in outcome.rows) == (2 if trained else 0)
    assert outcome.ended_by == (limit if trained else "exception")
    assert (outcome.exception is None) is trained
    if not trained:
        assert (outcome.exception or "").startswith("RewardError: ")


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        ({}, 0.0),
        ({"environment_setup": None, "agent_setup": {"started_at": "2026-01-01T00:00:00Z"}}, 0.0),
        (
            {
                "environment_setup": {
                    "started_at": "2026-01-01T00:00:00Z",
                    "finished_at": "2026-01-01T00:01:00Z",
                },
                "agent_setup": {"started_at": "2026-01-01T00:01:00.5", "finished_at": "2026-01-01T00:01:03"},
            },
            62.5,
        ),
        ({"agent_setup": {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:01:00"}}, 0.0),
        ({"agent_setup": "late"}, 0.0),
        ([1], 0.0),
    ],
)
def test_the_time_that_harbor_took_for_its_sandbox(tmp_path: Path, result: Any, seconds: float) -> None:
    assert harbor._set_up(tmp_path) == 0.0, "it has written no result"
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert harbor._set_up(tmp_path) == seconds


# --- where a person looks ---------------------------------------------------------------------------------------------


async def test_page_list_and_step_line_say_what_the_trial_says(
    tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    texts = {"talk(1)": "trained", "talk(1); sys.exit(1)": "masked", "talk(1); sys.exit(2)": "masked"}
    outcomes = []
    for number, text in enumerate([*texts, "talk(9)"]):
        run = Trials(tmp_path, host, {"endings": Endings(limit="reward_zero")})
        run.agent = msgspec.structs.replace(
            run.agent, command=run.script(f"agent{number}", f"{ASK}{text}; reward(1)")
        )
        outcome = await run.run(max_turns=2)
        if not outcome.recorded:
            outcome.record(1.0)
        outcomes.append(outcome)
    tallies = StepTallies()
    for outcome in outcomes:
        trial = Trial(str(tmp_path / "trials"), f"step_0003/{outcome.name}", 3)
        assert trial.check(lambda path, offset, add, inside: (offset, False), 1e12)
        head = trial.head()
        assert (head.cause, head.outcome) == (outcome.ending.cause, outcome.ending.outcome)
        tallies.add(head, 0)
        page = read_trajectory(outcome.files.directory)
        # The exception that ended it stands beside the ending.
        why = outcome.ending.why.removesuffix(page.exception or "").removesuffix("; ")
        ending = told(msgspec.structs.replace(outcome.ending, why=why))
        assert (page.ending, page.not_trained) == (ending, outcome.not_trained)
        assert page.exception == outcome.exception
        rows = "\n".join(row.text for row in header_rows(200, page.path, page))
        whole = "".join(ending.split()) in "".join(rows.split())  # it is wrapped
        assert whole is (outcome.ending.cause != "done")
        assert ("tokens not trained:" in rows) is bool(outcome.not_trained)
    (step,) = tallies.steps(tallies.went_back(), False)
    assert step.endings == {"done trained": 1, "exit masked": 2, "limit zeroed": 1}
    assert step.ended(("masked", "zeroed")) == {"exit": 2, "limit": 1}
    assert untrained(step) == ", 2 not trained, 1 trained with reward 0"
    counts = outcomes[0].counts._own
    assert counts.causes == {"done": 1, "exit": 2, "limit": 1}


@pytest.mark.parametrize("ending", [None, "x", {}, {"cause": "fire", "outcome": "burnt"}, {"cause": 1}, []])
def test_endings_that_no_version_knows_are_left_out(tmp_path: Path, ending: Any) -> None:
    result = {"trial_name": "t", "ending": ending, "not_trained": {"a": "b", "c": 3} if ending else []}
    (tmp_path / "result.json").write_text(json.dumps(result))
    page = read_trajectory(tmp_path)
    assert (page.ending, page.outcome) == ("", "")
    assert page.not_trained == ({"c": 3} if ending else {})
    parsed = parse_result(json.dumps(result).encode())
    assert parsed is not None and (parsed.cause, parsed.outcome) == ("", "")
