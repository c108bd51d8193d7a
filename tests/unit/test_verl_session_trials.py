"""A trial of verl through a session: the agent's real requests, sessions in this process, simulated replicas."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.session_host import CONTROL, SessionHost
from kit.token_replica import TokenReplica

from liverl.agents.loop import TrialFailed
from liverl.agents.tasks import dataset
from liverl.agents.tool_calls import render_qwen3_coder
from liverl.sessions.client import OpenSession, ServiceSessions, SessionFailed, opened_at
from liverl.sessions.counters import Counters
from liverl.sessions.result import SessionResult
from liverl.sessions.sampling import Limits
from liverl.sessions.segments import Row, Versions
from liverl.sessions.store import SessionEnded
from liverl.verl_runtime.carriers import Lengths, SessionCarrier, fit
from liverl.verl_runtime.loop_trial import LoopSettings, Outcome, Prompt, run_trial


def row(kind: str = "main", prompt: int = 2, mask: str = "110110", versions: Any = ((4, 3), (6, 1))) -> Row:
    bits = [int(bit) for bit in mask]
    behind = list(range(50, 50 + len(bits)))
    return Row(
        kind,  # type: ignore[arg-type]
        prompt,
        [*range(prompt), *behind],
        bits,
        [-float(token) * bit for token, bit in zip(behind, bits, strict=True)],
        tuple(Versions(*each) for each in versions),
    )


def test_a_row_is_cut_at_its_end_and_ends_with_a_sampled_token() -> None:
    whole = fit(row(), 8)
    assert whole is not None
    assert (whole.prompt, whole.response, whole.mask) == ([0, 1], [50, 51, 52, 53, 54], [1, 1, 0, 1, 1])
    assert whole.logprobs == [-50.0, -51.0, 0.0, -53.0, -54.0] and whole.turns == 2
    assert (whole.kind, whole.versions) == ("main", (4, 6))
    cut = fit(row(), 5)
    assert cut is not None and (cut.response, cut.mask, cut.turns) == ([50, 51], [1, 1], 1)
    for most in (2, 1):  # only the prompt is left, or less than that
        assert fit(row(), most) is None
    assert fit(row(mask="0011"), 4) is None


def test_versions_that_an_engine_does_not_say_are_unknown() -> None:
    unknown = fit(row(versions=((None, 4),)), 8)
    assert unknown is not None and unknown.versions is None
    partly = fit(row(versions=((None, 2), (7, 2))), 8)
    assert partly is not None and partly.versions == (7, 7)


class Host:
    """What a trainer is given, scripted. ``rows``: of the session; an exception is raised instead."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.ended = rows, 0
        self.limits: list[Limits] = []

    async def open(self, session: str, trial_dir: Path, limits: Limits) -> OpenSession:
        self.limits.append(limits)
        raise SessionFailed("SessionRefusedError", "not today")

    async def finish(self, session: str, seconds: float) -> SessionResult:
        self.ended += 1
        if isinstance(self.rows, Exception):
            raise self.rows
        return SessionResult(list(self.rows), {"aside": 7, "length": 1}, Counters(num_calls=3))


LENGTHS = Lengths(prompt=4, response=4, turn=9)


class Opening(Host):
    """Opens what it is asked for."""

    async def open(self, session: str, trial_dir: Path, limits: Limits) -> OpenSession:
        return opened_at("http://h", session, "key")


async def test_rows_without_a_token_that_verl_trains_are_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    carrier = SessionCarrier(Opening([row("sub", prompt=20), row("rewrite", prompt=7), row()]), LENGTHS)
    await carrier.begin("t", tmp_path, Limits())
    with caplog.at_level(logging.WARNING):
        carried = await carrier.end()
    kept = carried.rows
    assert [each.kind for each in kept] == ["rewrite", "main"]
    assert len(kept[0].prompt) + len(kept[0].response) == 8
    # Each row has 4 sampled tokens, of which verl trains 0, 1 and 4; the session itself says of 8 why not.
    assert [sum(each.mask) for each in kept] == [1, 4]
    assert (carried.not_trained, carried.counters.num_calls) == ({"aside": 7, "length": 1 + 4 + 3}, 3)
    assert "1 of 3 rows have no sampled token within the 8 tokens" in caplog.text


async def test_the_session_gets_verls_parameters_and_limits(tmp_path: Path) -> None:
    host = Host([])
    with pytest.raises(TrialFailed, match="not today"):
        await SessionCarrier(host, LENGTHS).begin(
            "t", tmp_path, Limits(sampling={"top_k": 5}, max_turns=6, seconds=77.0)
        )
    assert host.limits == [Limits(sampling={"top_k": 5}, max_turns=6, max_response_tokens=4, seconds=77.0)]


async def test_a_trial_that_never_got_a_session_has_none_to_end() -> None:
    host = Host(SessionFailed("SessionTimeoutError", "gone"))
    carrier = SessionCarrier(host, LENGTHS)
    assert (await carrier.end()).rows == [] and host.ended == 0


# --- whole trials
# -----------------------------------------------------------------------------------------------------

TASK = next(task for task in dataset() if task.kind == "create")
CREATE = ("write_file", {"path": next(iter(TASK.expect)), "content": next(iter(TASK.expect.values()))})
SUBMIT = ("submit", dict[str, str]())


LINES = [render_qwen3_coder(*CREATE), render_qwen3_coder(*SUBMIT)]


class Through:
    """Sends what is meant for the service's socket to a port."""

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http, self._address = http, address

    def post(self, url: str, **more: Any) -> Any:
        return self._http.post(self._address + url.removeprefix("http://sessions"), **more)


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Any]:
    """Runs one trial: ``await run(*lines)``, with what the replica writes in each turn."""
    host = SessionHost(tmp_path)
    replicas: list[TokenReplica] = []

    async def one(*lines: str, **changes: Any) -> tuple[Outcome, TokenReplica]:
        replica = TokenReplica(lambda _prompt, turn: lines[turn])
        replicas.append(replica)
        host.urls = [await replica.start()]
        await host.start()
        known: dict[str, Any] = {
            "run_dir": str(tmp_path),
            "attempt_dir": str(tmp_path / "attempt_001"),
            "served_model": "m",
            "prompt_length": 4000,
            "response_length": 4000,
            "trial_timeout": 20.0,
        }
        settings = LoopSettings(**{**known, **changes})
        prompt = prompt_of(TASK.instruction)
        async with aiohttp.ClientSession() as http:
            sessions = ServiceSessions(Through(http, host.control_address), CONTROL)  # type: ignore[arg-type]
            outcome = await run_trial(settings, prompt, SessionCarrier(sessions, settings.lengths))
        return outcome, replica

    one.host = host  # type: ignore[attr-defined]
    yield one
    await host.stop()
    for replica in replicas:
        await replica.stop()


def prompt_of(text: str) -> Prompt:
    row = {"extra_info": {"task_id": TASK.id}}
    messages = [{"role": "user", "content": text}]
    return Prompt("task", TASK.id, row, messages, 3, False, "u", 0, {"temperature": 0.9})


def result(run_dir: Path, outcome: Outcome) -> dict[str, Any]:
    path = run_dir / "trials" / "step_0003" / outcome.name / "result.json"
    return dict(json.loads(path.read_text()))


async def test_every_token_that_was_sampled_is_in_the_row(run: Any, tmp_path: Path) -> None:
    outcome, replica = await run(*LINES)
    assert (outcome.reward, outcome.ended_by, outcome.exception) == (1.0, "submit", None)
    (only,) = outcome.rows
    assert only.prompt == replica.prompts[0] and only.turns == 2
    sampled = [token for token, bit in zip(only.response, only.mask, strict=True) if bit]
    assert sampled == [*replica.replies[0], *replica.replies[1]]
    assert [*only.prompt, *only.response] == [*replica.prompts[1], *replica.replies[1]]
    facts = result(tmp_path, outcome)
    assert (facts["turns_trained"], facts["tokens_trained"], facts["divergences"]) == (2, len(sampled), [])
    document = tmp_path / "trials" / "step_0003" / outcome.name / "proxy_trajectory.json"
    assert json.loads(document.read_text())["counters"]["num_calls"] == 2


async def test_a_turn_gets_what_the_row_still_holds(run: Any) -> None:
    outcome, replica = await run(*LINES, response_length=12, max_tokens=9)
    assert sum(len(reply) for reply in replica.replies) <= 12 and len(replica.replies[0]) == 9
    assert outcome.exception is None and len(outcome.rows[0].response) <= 12


async def test_a_failed_trial_trains_nothing_and_its_address_no_longer_works(
    run: Any, tmp_path: Path
) -> None:
    outcome, _ = await run(LINES[0], trial_timeout=2.0)  # the second turn fails in the replica
    assert outcome.rows == [] and (outcome.exception or "").startswith("TrialTimeoutError"), outcome.exception
    assert (outcome.reward, result(tmp_path, outcome)["tokens_trained"]) == (0.0, 0)
    with pytest.raises(SessionEnded):
        run.host.store.session(outcome.name)


async def test_a_trial_that_gets_no_session_has_failed(tmp_path: Path) -> None:
    settings = LoopSettings(str(tmp_path), str(tmp_path / "attempt_001"), "m", 400, 400, trial_timeout=5.0)
    outcome = await run_trial(settings, prompt_of("x"), SessionCarrier(Host([]), settings.lengths))
    assert (outcome.exception, outcome.rows) == ("SessionRefusedError: not today", [])


async def test_rows_that_cannot_be_had_train_nothing_and_earn_nothing(run: Any, tmp_path: Path) -> None:
    async def refuse(self: Any, session: str, seconds: float) -> list[Row]:
        raise SessionFailed("SessionTimeoutError", "gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceSessions, "finish", refuse)
        outcome, _ = await run(*LINES)
    assert (outcome.reward, outcome.rows, outcome.exception) == (0.0, [], "SessionTimeoutError: gone")
