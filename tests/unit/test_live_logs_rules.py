"""Rules on logs of services that run: what fires them, what must not, and nothing on healthy recordings."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from kit.live_logs import Followed
from kit.screens import service, snapshot, trial
from msgspec.structs import replace

from liverl.causes.catalogue import by_id, rows
from liverl.causes.signature import Live, Signature
from liverl.diagnose.catalogue.alert_ids import kinds
from liverl.diagnose.catalogue.live_logs import (
    ENDED_S,
    MANY,
    RESTARTED_S,
    SETTLED_S,
    SHARE,
    USUAL,
    log_flood,
    requests_undated,
)
from liverl.diagnose.tracker import RunContext, Window
from liverl.model import ReplicaSet, ReplicaStatus, ServiceState, StepTrials, Symptom, TrialsStatus
from liverl.observe.live_logs.reader import MOST, FollowedLog, LiveLogs
from liverl.observe.live_logs.watched import COUNTED, watched
from liverl.sessions.sampling import OVERFLOW, TIME_OVER, at_limit, replies_over, turns_over

DATA = Path(__file__).parents[1] / "data"
HEALTHY = (
    *("h200/litellm.log", "h200/verl.log", "h200/vllm0.log", "h200/vllm1.log", "h200_run/trainer.log"),
    *("h200_run/standalone.log", "h200_run/standalone_flush.log"),
    *(
        "litellm_startup.log",
        "litellm_w2.log",
        "litellm_sigterm_inflight.log",
        "ray_job.log",
        "ray_start.log",
    ),
    *("vllm_startup.log", "vllm_startup_qwen3_coder.log", "vllm_sigterm_shutdown.log"),
    *("verl_cpu/run6steps.stdout.log", "verl_cpu/run6steps.stderr.log", "verl_cpu/discovery_race.log"),
)
OK = '(APIServer pid=7) INFO:     10.0.0.1:4000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
POLL = '(APIServer pid=7) INFO:     10.0.0.1:4000 - "GET /health HTTP/1.1" 200 OK'
WAITING = "Warning: The following resource request cannot be scheduled right now: {'GPU': 1.0}."
BY_ID = by_id()
WATCHED = watched(rows())


def answer(status: int, words: str = "Bad Request", path: str = "/v1/chat/completions") -> str:
    return f'(APIServer pid=7) INFO:     10.0.0.1:4000 - "POST {path} HTTP/1.1" {status} {words}'


@pytest.fixture
def run(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def threshold(signature: Signature) -> Live:
    return signature.live or USUAL[signature.severity]


def service_of(signature: Signature) -> str:
    return {"litellm": "proxy", "vllm": "r0"}.get(signature.printer, "trainer")


# --- what the catalogue knows ---------------------------------------------------------------------------


def test_every_row_of_a_process_that_goes_on_is_looked_for() -> None:
    alive = {one.id for one in rows() if one.alive and one.fails != "command"}
    counted = {one.id for one in rows() if one.told_by in COUNTED}
    assert counted and counted < alive
    assert (alive - counted) | {one.id for one in rows() if one.live} == {one.id for one in WATCHED}


def test_what_tells_the_same_as_a_row_is_an_alert() -> None:
    told = {one.told_by for one in rows()} - {""}
    assert len(told) > 5 and told <= set(kinds())


@pytest.mark.parametrize("signature", WATCHED, ids=lambda one: one.id)
def test_a_row_is_a_symptom_when_it_was_seen_often_enough(run: Followed, signature: Signature) -> None:
    name, least = service_of(signature), threshold(signature).least
    run.path(name).touch()
    run.look()
    run.write(name, *[signature.spares] * least)
    run.look(1 + ENDED_S)
    assert not [one for one in run.symptoms() if one.startswith(f"log:{signature.id}:")], "a near miss"
    for number in range(1, least + 1):
        assert f"log:{signature.id}:{name}" not in run.symptoms(), number
        run.write(name, signature.fires, "and something else")
        run.look(1 if number < least else 0)
    if least < 3 and not signature.alive:
        assert f"log:{signature.id}:{name}" not in run.symptoms(), "its process may be about to end"
        run.look(ENDED_S)
    symptom = run.symptoms()[f"log:{signature.id}:{name}"]
    assert symptom.severity == signature.severity
    assert symptom.title.startswith(f"{name}: ")
    assert not re.search(r"\{[a-z]+\}", symptom.title + symptom.cause + symptom.fix), "every group is filled"
    assert symptom.cause and symptom.fix
    assert symptom.cause != symptom.title.partition(": ")[2], "a cause says more than that it happened"
    place = symptom.evidence[0]
    assert place.log == f"attempt_001/logs/{name}.1.log" and place.offset is not None
    text = run.path(name).read_bytes()[place.offset :].decode()
    assert signature.needle in text, "the offset leads to the record"
    assert symptom.evidence[1].value == least


@pytest.mark.parametrize("signature", WATCHED, ids=lambda one: one.id)
def test_what_was_seen_long_ago_is_none(run: Followed, signature: Signature) -> None:
    name = service_of(signature)
    run.path(name).touch()
    run.look()
    run.write(name, *[signature.fires, "and something else"] * threshold(signature).least)
    run.look()
    run.look(threshold(signature).within + 10)
    assert run.symptoms() == {}


def test_the_command_and_the_patch_of_a_row_are_shown(run: Followed) -> None:
    run.write("trainer", BY_ID["ray-request-pending"].fires)
    run.look()
    symptom = run.symptoms()["log:ray-request-pending:trainer"]
    assert symptom.title == "trainer: An actor or placement group waits for {'CPU': 1.0, 'GPU': 1.0}"
    assert symptom.fix.endswith("Look with: ray status")
    run.write("r0", *[BY_ID["vllm-auto-tools-off"].fires] * 3)
    run.look()
    assert run.symptoms()["log:vllm-auto-tools-off:r0"].patch == {"model.tool_parser": "qwen3_coder"}


def test_a_parser_that_is_set_already_is_no_patch_and_trials_say_more(run: Followed) -> None:
    run.write("r0", *[BY_ID["vllm-tool-calls-unreadable"].fires] * MANY)
    run.look()
    name = "log:vllm-tool-calls-unreadable:r0"
    assert run.symptoms(tool_parser="hermes")[name].patch == {"model.tool_parser": "qwen3_coder"}
    assert run.symptoms(tool_parser="qwen3_coder")[name].patch == {}
    silent = TrialsStatus(steps=(StepTrials(7, 16, 16, 16, 0.0),))
    assert run.symptoms(trials=silent) == {}, "zero_tool_calls reports it, with what the model wrote"


@pytest.mark.parametrize(
    ("calls", "fields", "raised"),
    [
        ([3, 3, 3, 0], {}, False),  # slips of the model: most trials called tools
        ([3, 3, 0, 0], {}, True),
        ([3, 3, 3], {}, True),  # too few
        ([3, 3, 3, 3, -1, -1, -1, -1, -1], {}, False),  # the others were offered none
        ([3, 3, -1, -1, -1], {}, True),
        ([3, 3, 3, 3], {"updated_at": 0.0}, True),  # of an attempt before this one
        ([3, 3, 3, 3], {"earlier": True}, True),
        ([3, 3, 3, 3], {"turns": 0}, True),  # only verl's dump is known
    ],
)
def test_a_parser_fits_whose_calls_most_trials_got(
    run: Followed, calls: list[int], fields: dict[str, Any], raised: bool
) -> None:
    run.write("r0", *[BY_ID["vllm-tool-calls-unreadable"].fires] * MANY)
    run.look()
    now = {"updated_at": time.time() + 1e6, **fields}
    heads = tuple(
        trial(number, tool_calls=max(0, count), tools_offered=False if count < 0 else None, **now)
        for number, count in enumerate(calls)
    )
    found = run.symptoms(trials=TrialsStatus(newest=heads))
    assert ("log:vllm-tool-calls-unreadable:r0" in found) == raised


WAITS = [one for one in WATCHED if threshold(one).waits and not threshold(one).connects]


@pytest.mark.parametrize("signature", WAITS, ids=lambda one: one.id)
def test_a_wait_is_over_with_the_next_work(run: Followed, signature: Signature) -> None:
    name, symptom_id = service_of(signature), f"log:{signature.id}:{service_of(signature)}"
    run.path(name).touch()
    run.look()
    run.write(name, OK, *[signature.fires] * threshold(signature).least)
    run.look()
    run.look(ENDED_S)
    assert symptom_id in run.symptoms()
    hung = "INFO 07-15 15:38:47 [loggers.py:1] Avg generation throughput: 0.0 tokens/s, Running: 8 reqs"
    run.write(name, POLL, hung, "something")
    run.look()
    assert symptom_id in run.symptoms(), (
        "a server whose engine hangs answers health checks, and logs a throughput"
    )
    run.write(name, OK)
    run.look()
    assert run.symptoms() == {}


def test_one_symptom_for_all_replicas_with_one_complaint(run: Followed) -> None:
    for name in ("r0", "r1", "r2"):
        run.write(name, *[BY_ID["vllm-no-chat-template"].fires] * 3)
    run.look()
    (symptom,) = run.symptoms().values()
    assert symptom.id == "log:vllm-no-chat-template:r0" and symptom.title.startswith("r0 and 2 more: ")
    assert [one.log for one in symptom.evidence if one.log] == [
        f"attempt_001/logs/r{i}.1.log" for i in range(3)
    ]


def test_the_proxy_speaks_for_its_replicas(run: Followed) -> None:
    for name in ("r0", "proxy"):
        run.write(name, *[BY_ID["vllm-no-chat-template"].fires, answer(400)] * MANY)
    run.look()
    assert set(run.symptoms()) == {"log:vllm-no-chat-template:proxy"}


def test_complaints_about_few_of_many_requests_are_none(run: Followed) -> None:
    fires = BY_ID["vllm-context-exceeded"].fires
    run.write("r0", *[fires, "something else"] * MANY, *[OK] * round(MANY / SHARE))
    run.look()
    assert run.symptoms() == {}
    run.write("r0", fires, "something else")
    run.look()
    assert set(run.symptoms()) == {"log:vllm-context-exceeded:r0"}


@pytest.mark.parametrize("first", [True, False])
def test_the_same_lines_in_two_logs_of_a_service_count_once(run: Followed, first: bool) -> None:
    run.write("trainer", *[answer(500), WAITING, "something else"] * (7 if first else 6))
    copy = run.run_dir / "attempt_001" / "logs" / "train-log.1.log"
    copy.write_text("".join(f"{line}\n" for line in [answer(500), WAITING, "x"] * (6 if first else 7)))
    logs = [FollowedLog("trainer", run.path("trainer")), FollowedLog("trainer", copy)]
    run.live.look(logs, run.now)
    run.live.look(logs, run.now)
    found = run.symptoms()
    assert found["log:ray-request-pending:trainer"].evidence[1].value == 7
    assert found["log:ray-request-pending:trainer"].title.startswith("trainer: "), "it is one service"
    assert found["responses_500:trainer"].cause.startswith("7 requests")


def test_the_proxy_names_the_cause_of_what_its_replicas_answer_without_a_word(run: Followed) -> None:
    run.write("proxy", *[BY_ID["vllm-context-exceeded"].fires, answer(400)] * 2 * MANY)
    run.write("r0", *[answer(400)] * MANY)
    run.look()
    assert set(run.symptoms()) == {"log:vllm-context-exceeded:proxy"}
    run.write("r0", *[answer(500)] * MANY)
    run.look()
    assert set(run.symptoms()) == {"log:vllm-context-exceeded:proxy", "responses_500:r0"}


def test_a_consequence_beside_its_cause_is_none(run: Followed) -> None:
    down = (DATA / "recordings" / "litellm_backend_down.log").read_text()
    block = down[down.index("00:03:20") : down.index("INFO:     127.0.0.1:36352")].splitlines()
    run.path("proxy").touch()
    run.look()
    run.write("proxy", *[line for _ in range(12) for line in (*block, answer(500))])
    run.look()
    (symptom,) = run.symptoms().values()
    assert symptom.id == "log:litellm-backend-down:proxy" and "127.0.0.1:8399" in symptom.title


@pytest.mark.parametrize("state", ["stopping", "failed", "gave_up", "backing_off", "stopped"])
def test_a_service_that_ended_has_no_symptom_of_one_that_runs(run: Followed, state: str) -> None:
    run.write("trainer", BY_ID["ray-request-pending"].fires)
    run.look()
    assert run.symptoms()
    assert run.symptoms(services=run.services(state=state)) == {}


def test_a_run_that_stops_has_none(run: Followed) -> None:
    run.write("trainer", BY_ID["ray-request-pending"].fires)
    run.write("r0", *[answer(500)] * 20)
    run.look()
    assert len(run.symptoms()) == 2
    assert run.symptoms(state="stopping") == {}


# --- starts ---------------------------------------------------------------------------------------------

CONNECTS = [one for one in WATCHED if threshold(one).connects]


@pytest.mark.parametrize("signature", CONNECTS, ids=lambda one: one.id)
def test_connections_that_are_refused_while_services_start_are_none(
    run: Followed, signature: Signature
) -> None:
    least = threshold(signature).least
    run.write("trainer", *[signature.fires] * least)
    run.write("r0", POLL)
    run.look()
    symptom_id = f"log:{signature.id}:trainer"
    trainer, replica_ = run.services()
    assert symptom_id in run.symptoms()
    starting = replace(replica_, state="starting", ready_at=None)
    assert run.symptoms(services=(trainer, starting)) == {}
    just_up = replace(replica_, ready_at=run.now - 20)
    assert run.symptoms(services=(trainer, just_up)) == {}
    failed = replace(replica_, failed_at=run.now - RESTARTED_S + 1)
    assert run.symptoms(services=(trainer, failed)) == {}
    settled = replace(replica_, ready_at=run.now - SETTLED_S - 10)
    assert symptom_id in run.symptoms(services=(trainer, settled))
    long_ago = replace(replica_, failed_at=run.now - RESTARTED_S - 1)
    assert symptom_id in run.symptoms(services=(trainer, long_ago))
    environment = service("env:litellm", "environment", "preparing")
    assert symptom_id in run.symptoms(services=(trainer, replica_, environment))
    stopped = replace(replica_, state="stopped", since=run.now - SETTLED_S + 1)
    assert run.symptoms(services=(trainer, stopped)) == {}
    still = replace(stopped, since=run.now - SETTLED_S - 10)
    assert symptom_id in run.symptoms(services=(trainer, still))


@pytest.mark.parametrize(
    ("state", "after", "told"),
    [
        ("ready", OK, False),
        ("ready", "", True),  # the replica answers us, and the proxy has not reached it again
        ("failed", OK, True),  # another replica has answered
    ],
)
def test_a_replica_that_is_reached_again_is_no_symptom(
    run: Followed, state: ServiceState, after: str, told: bool
) -> None:
    """Whoever looks for the first time does not know when the replica became ready."""
    down = BY_ID["litellm-backend-down"]
    run.write("proxy", *[down.fires] * threshold(down).least, *([after] if after else []))
    run.look()
    items = (ReplicaStatus("r0", state, "http://127.0.0.1:8398", listed=True),)
    found = run.symptoms(replicas=ReplicaSet(items=items))
    assert ("log:litellm-backend-down:proxy" in found) == told


def test_what_a_server_answers_while_it_loads_is_none(run: Followed) -> None:
    run.write("r0", *[answer(404, "Not Found"), answer(503, "Service Unavailable")] * 20)
    run.look()
    starting = run.services(state="starting", ready_at=None)
    assert run.symptoms(services=starting) == {}
    run.look(10)
    assert run.symptoms(services=run.services(ready_at=run.now)) == {}, "all of it was written before"
    assert set(run.symptoms()) == {"responses_404:r0", "responses_503:r0"}


# --- requests that fail ---------------------------------------------------------------------------------


def test_requests_that_fail_alike(run: Followed) -> None:
    # liverl does not know this error of vLLM's.
    error = "ERROR 01-30 16:17:00 [serving_chat.py:222] ValueError: please provide a seventh argument"
    run.write("r0", *[line for i in range(MANY) for line in (error, answer(400))])
    run.look()
    (symptom,) = run.symptoms().values()
    assert symptom.id == "responses_400:r0" and symptom.severity == "warning"
    assert symptom.title == "r0 answers 400 2 times a minute: ValueError: please provide a seventh argument"
    assert "5 requests within 2 minutes were answered with 400, 0 succeeded meanwhile" in symptom.cause
    assert symptom.evidence[0].log == "attempt_001/logs/r0.1.log"
    assert symptom.evidence[1].value == MANY
    assert symptom.evidence[1].text.startswith("5 times 400 to POST /v1/chat/completions: ValueError")


def refused(status: int, why: str, path: str = "/sess/t-1/v1/messages") -> str:
    head = "2026-12-01 06:02:08,084 INFO liverl-sessions: 127.0.0.1"
    return f'{head} "POST {path} HTTP/1.1" {status}, 0.001 s{why and ": "}{why}'


def test_what_the_sessions_refuse_is_one_alert_that_says_why(run: Followed) -> None:
    lines = [refused(400, "n is not supported")] * 6 + [refused(404, "the model `x` is not served here")] * 4
    run.write("sessions", *lines, refused(200, ""), *[refused(200, "", "/sessions")] * 30)
    run.look()
    found = run.symptoms()
    (symptom,) = found.values()
    assert (symptom.id, symptom.severity) == ("requests_refused:sessions", "warning")
    assert symptom.title == "sessions refuse 5 requests a minute: n is not supported"
    assert symptom.cause.startswith(
        "10 requests within 2 minutes were refused for what they ask, 1 succeeded meanwhile"
    )
    assert [one.value for one in symptom.evidence[1:]] == [6, 4]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, ""),
        (400, "exceed context limit! prompt is too long"),  # of each first prompt: none succeeds
        (410, "session apples-1 is finished"),
        (503, "no replica"),
    ],
)
def test_what_the_sessions_refuse_for_another_reason_is_no_fault_of_the_request(
    run: Followed, status: int, why: str
) -> None:
    run.write("sessions", *[refused(status, why)] * 6)
    run.look()
    assert set(run.symptoms()) == {f"responses_{status}:sessions"}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (400, f"{OVERFLOW} the session has 972 tokens behind its first prompt, its limit is 512"),
        (400, f"{OVERFLOW} prompt is too long: 9000 tokens > 8192 maximum"),
        (410, turns_over("apples-8-23abcf63", 6)),
        (410, replies_over("apples-8-23abcf63", 3)),
        (410, f"{TIME_OVER} apples-8-23abcf63 is over"),
    ],
)
def test_a_trial_that_has_used_up_its_limits_is_no_request_that_failed(
    run: Followed, status: int, why: str
) -> None:
    assert at_limit(why)
    run.write("sessions", *[refused(status, why)] * 20, *[refused(200, "")] * 20)
    run.look()
    assert run.symptoms() == {}


@pytest.mark.parametrize(
    ("status", "why", "title"),
    [
        (410, "session apples-8-23abcf63 is finished", "sessions answers 410 5 times a minute: a session is finished"),
        (400, "session 'a-1', n is 3", "sessions refuse 5 requests a minute: a session, n is 3"),
    ],
)  # fmt: skip
def test_a_title_names_no_single_trial(run: Followed, status: int, why: str, title: str) -> None:
    assert not at_limit(why)
    run.write("sessions", *[refused(status, why)] * 10, *[refused(200, "")] * 20)
    run.look()
    (symptom,) = run.symptoms().values()
    assert symptom.title == title
    assert why in symptom.evidence[0].words, "a piece of evidence may name one"


@pytest.mark.parametrize(
    ("number", "state", "told"), [(5, "ready", True), (4, "ready", False), (5, "failed", False)]
)
def test_requests_that_failed_at_unknown_times_are_told(
    run: Followed, number: int, state: str, told: bool
) -> None:
    run.live = LiveLogs(run.run_dir, foreign=True)
    run.write("proxy", *[answer(500)] * number)
    run.look()
    window = Window(
        run.snapshot(services=run.services(state=state)), None, RunContext(live_logs=run.live.facts)
    )
    found = [one for one in requests_undated(window) if isinstance(one, Symptom)]
    assert [one.id for one in found] == (["requests_undated:proxy"] if told else [])
    assert run.symptoms() == {}, "no rate without times"
    run.look(400)
    assert not run.live.facts[0].undated, "the watch has seen the last minutes itself"


@pytest.mark.parametrize(
    ("written", "state", "told"),
    [(4 * MOST, "ready", True), (4 * MOST, "failed", False), (MOST // 2, "ready", False)],
)
def test_what_was_passed_over_of_a_flood_is_told(run: Followed, written: int, state: str, told: bool) -> None:
    """An error in the middle of a flood raises no alert: then nothing may look as if all had been read."""
    run.write("r0", "quiet")
    run.look()
    quiet = "quiet " * 20
    run.write(
        "r0",
        *[quiet] * (written // 2 // len(quiet)),
        *[answer(500)] * 20,
        *[quiet] * (written // 2 // len(quiet)),
    )
    run.look()

    def flooded() -> list[Symptom]:
        now = run.snapshot(services=run.services(state=state))
        window = Window(now, None, RunContext(live_logs=run.live.facts))
        return [one for one in log_flood(window) if isinstance(one, Symptom)]

    assert [one.id for one in flooded()] == (["log_flood:r0"] if told else [])
    if told:
        assert "3 MB of it were not looked at" in flooded()[0].cause
        assert run.symptoms() == {}, "the error stands in what was passed over"
        run.look(400)
        assert flooded() == [], "it was in the last minutes only"
    elif state == "ready":
        assert set(run.symptoms()) == {"responses_500:r0"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 418, 422, 429, 500, 502, 503, 504])
def test_each_status_says_what_to_do(run: Followed, status: int) -> None:
    run.write("r0", *[answer(status, "Words")] * 2 * MANY)
    run.look()
    symptom = run.symptoms()[f"responses_{status}:r0"]
    assert symptom.severity == "critical", "nothing succeeds"
    assert symptom.fix and str(status) in symptom.title


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([answer(400)] * (MANY - 1), id="too few"),
        pytest.param([answer(400)] * MANY + [OK] * round(MANY / SHARE), id="a small share"),
        pytest.param([answer(200, "OK")] * 50, id="answered"),
        pytest.param([POLL.replace("200 OK", "503 Service Unavailable")] * 50, id="polls"),
        pytest.param(['agent 3 printed "POST nothing" 404'] * 50, id="no request"),
    ],
)
def test_requests_that_are_no_symptom(run: Followed, lines: list[str]) -> None:
    run.write("r0", *lines)
    run.look()
    assert run.symptoms() == {}


def test_a_share_just_large_enough(run: Followed) -> None:
    run.write("r0", *[answer(400)] * MANY, *[OK] * (round(MANY / SHARE) - MANY))
    run.look()
    assert set(run.symptoms()) == {"responses_400:r0"}


def test_requests_of_the_proxy_are_compared_with_the_answers_of_its_replicas(run: Followed) -> None:
    refused = "liverl-proxy: 400 POST /v1/chat/completions trial=t1 replica=http://127.0.0.1:1 too long"
    run.write("proxy", *[refused] * MANY)
    run.write("r0", *[OK] * 1000)
    run.look()
    assert run.symptoms() == {}
    run.write("proxy", *[refused] * 50)
    run.look()
    symptom = run.symptoms()["responses_400:proxy"]
    assert symptom.title.endswith("too long") and symptom.severity == "warning"


def test_complaints_of_verls_engines_are_compared_with_the_answers_of_the_sessions(run: Followed) -> None:
    """verl's engines are no services, and write into the trainer's log. A model that learns to call tools writes a few
    calls that nobody can read."""
    unreadable = (
        "(vLLMHttpServer pid=7) ERROR 11-28 18:15:26 [x.py:82] Error in extracting tool call from response."
    )
    request = '127.0.0.1 "POST /sess/a-1/v1/chat/completions HTTP/1.1"'
    answered = f"2026-11-28 18:15:05,692 INFO liverl-sessions: {request} 200, 0.4 s"
    run.write("trainer", *[unreadable] * 10)
    run.write("sessions", *[answered] * 540)
    run.look()
    assert run.symptoms() == {}
    run.write("trainer", *[unreadable] * 40)
    run.look()
    assert set(run.symptoms()) == {"log:vllm-tool-calls-unreadable:trainer"}


def test_what_our_own_proxy_counts_has_rules_of_its_own(run: Followed) -> None:
    run.write("proxy", *["liverl-proxy: 401 POST /v1/chat/completions"] * 20)
    run.write("proxy", *["liverl-proxy: 413 POST /v1/chat/completions trial=t replica=None too large"] * 20)
    wrong = (
        "litellm.BadRequestError: You passed in model=gpt-4. There are no healthy deployments for this model"
    )
    line = f"ERROR:    {wrong}"
    run.write("proxy", *[line, "liverl-proxy: 400 POST /v1/chat/completions trial=t replica=None"] * 20)
    run.look()
    assert set(run.symptoms()) == {
        "responses_401:proxy",
        "responses_413:proxy",
        "log:litellm-no-healthy:proxy",
    }
    counted = replace(snapshot().proxy, refused=20, too_large=20, unknown=20, unknown_models=("gpt-4",))
    assert run.symptoms(proxy=counted) == {}
    foreign = run.services(owner="foreign")
    assert len(run.symptoms(proxy=counted, services=foreign)) == 3, "of another LiteLLM only the log is known"


def test_a_client_that_is_refused(run: Followed) -> None:
    said = (
        "(AgentLoopWorker pid=9) openai.BadRequestError: Error code: 400 - {'error': {'message': 'no such tool', "
        "'type': 'BadRequestError', 'param': None, 'code': 400}}"
    )
    run.write("trainer", *[said] * MANY)
    run.look()
    symptom = run.symptoms()["responses_400:trainer"]
    assert symptom.title == "a server answers 400 to trainer 2 times a minute: no such tool"


# --- recordings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", HEALTHY)
@pytest.mark.parametrize("name", ["r0", "proxy", "trainer"])
def test_a_healthy_recording_has_none(run: Followed, log: str, name: str) -> None:
    run.path(name).write_bytes((DATA / "recordings" / log).read_bytes())
    run.look()
    assert run.symptoms() == {}
    run.look(ENDED_S + 1)
    assert run.symptoms() == {}


@pytest.mark.parametrize(
    ("log", "name", "expected"),
    [
        ("cases/18-vllm-no-chat-template-but-alive.log", "r0", "log:vllm-no-chat-template:r0"),
        ("cases/56-made-litellm-wrong-key.log", "proxy", "log:litellm-wrong-key:proxy"),
        ("cases/58-made-litellm-timeout.log", "proxy", "log:litellm-timeout:proxy"),
        ("cases/37-ray-placement-pending-then-interrupted.log", "trainer", "log:ray-no-node-type:trainer"),
        ("cases/16-vllm-rpc-timeout-hung-worker.log", "r0", "log:vllm-broadcast-wait:r0"),
        ("recordings/h200_run/replica_hermes.log", "r0", "log:vllm-tool-calls-unreadable:r0"),
        ("cases/20-verl-nccl-watchdog-timeout.log", "trainer", "log:nccl-watchdog:trainer"),
    ],
)
def test_a_recording_of_a_run_that_fails_alive(run: Followed, log: str, name: str, expected: str) -> None:
    """Each log is played until its process ended, if it did."""
    text = (DATA / log).read_text()
    run.path(name).write_text(text.partition("^C")[0])
    run.look()
    run.look(ENDED_S)
    assert set(run.symptoms()) == {expected}
