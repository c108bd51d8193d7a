"""Reading Ray's dashboard: its recorded answers, and a server that answers wrongly (simulated)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from liverl.supervise.services.probes import Http
from liverl.verl.discovery.causes import death_words, short_cause
from liverl.verl.discovery.ray_rest import (
    LIMIT,
    RayError,
    RayRest,
    VariableToken,
    parse_actors,
    parse_times,
    pending_notes,
    placed,
    resource_words,
    variable_token,
)

RECORDED = Path(__file__).parents[1] / "data/recordings/ray_rest"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "actor_id",
        "name",
        "state",
        "pid",
        "num_restarts",
        "required_resources",
        "death_cause",
        "placement_group_id",
    ]
)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


@given(st.lists(st.dictionaries(FIELDS, JSON) | JSON, max_size=4))
def test_any_answer_is_read(rows: list[Any]) -> None:
    for actor in parse_actors(rows):
        assert actor.actor_id
        assert actor.incarnation


@given(st.dictionaries(st.sampled_from(["startTime", "endTime", "address"]), JSON))
def test_any_times_are_read(row: dict[str, Any]) -> None:
    parse_times(row)


@given(JSON)
def test_any_cause_is_one_line(cause: Any) -> None:
    line = short_cause(death_words(cause))
    assert line and "\n" not in line and len(line) <= 300


@pytest.mark.parametrize("death", ["", "\r", " \n\n\t"])
def test_a_cause_without_words_is_said_to_be_none(death: str) -> None:
    assert short_cause(death) == "Ray reports no cause"


def test_the_recorded_actors() -> None:
    rows = recorded("actors.json")["data"]["result"]["result"]
    actors = {(a.name, a.state): a for a in parse_actors(rows)}
    assert len(actors) == 14
    pending = actors["vllm_server_2_0", "PENDING_CREATION"]
    assert (pending.pid, pending.node_id, pending.resources) == (None, None, {"CPU": 1000.0})
    assert actors["vllm_server_0_0", "ALIVE"].pid == 3274
    assert actors["vllm_server_11_0", "DEPENDENCIES_UNREADY"].pid is None
    grouped = actors["vllm_server_10_0", "PENDING_CREATION"]
    assert resource_words(grouped.resources) == "{CPU: 500}"
    assert grouped.placement_group == "e7aec12322774fad809b6d17065201000000"
    assert actors["vllm_server_6_0", "DEAD"].restarts == 1
    died = actors["vllm_server_4_0", "DEAD"].death
    assert died.endswith("uninformed kernel OOM killing.")
    assert short_cause(died).endswith(
        "Worker unexpectedly exits with a connection error code 2. End of file."
    )
    assert short_cause(actors["vllm_server_5_0", "DEAD"].death) == "RuntimeError: no model there"
    killed = actors["vllm_server_7_0", "DEAD"]
    assert killed.death == "The actor is dead because it was killed by `ray.kill`."
    assert killed.actor_id != actors["vllm_server_7_0", "ALIVE"].actor_id


def test_other_causes() -> None:
    env = "Could not create the actor because its associated runtime env failed to be created.\n[Node x] Traceback\n"
    env += 'ModuleNotFoundError: No module named "boto3"\n  File "a.py", line 1\nImportError: You must install it.\n'
    assert short_cause(death_words({"runtime_env_failed_context": {"error_message": env}})) == (
        "Could not create the actor because its associated runtime env failed to be created. "
        "ImportError: You must install it."
    )
    assert short_cause(death_words({"new_context": {"what": 1}})) == "Ray reports no cause"
    assert "sk-" not in death_words({"x": {"error_message": "key sk-0123456789abcdef is bad"}})
    assert short_cause("x" * 400).endswith("…")


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def dashboard() -> AsyncIterator[Callable[[Answer], Awaitable[RayRest]]]:
    """Starts an HTTP server in the dashboard's place (simulated) and gives a client of it."""
    http = Http()
    runners: list[web.AppRunner] = []

    async def start(answer: Answer, token: Path | VariableToken | None = None) -> RayRest:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return RayRest(http, f"http://127.0.0.1:{runner.addresses[0][1]}", token)

    yield start
    await http.close()
    for runner in runners:
        await runner.cleanup()


async def _recorded(request: web.Request) -> web.StreamResponse:
    name = {
        "/api/v0/actors": "actors.json",
        "/logical/actors": "logical_actors.json",
        "/api/v0/nodes": "nodes.json",
        "/api/v0/placement_groups": "placement_groups.json",
    }[request.path]
    return web.json_response(recorded(name))


async def test_the_recorded_answers_together(dashboard: Any) -> None:
    rest = await dashboard(_recorded)
    known: dict[str, Any] = {}
    actors = {a.name + a.state: a for a in await placed(rest, await rest.actors(), known)}
    alive = actors["vllm_server_0_0ALIVE"]
    assert (alive.started_at, alive.ended_at, alive.ip) == (1795262598.938, None, "192.0.2.2")
    assert actors["vllm_server_7_0DEAD"].ended_at == 1795262606.619
    assert actors["vllm_server_2_0PENDING_CREATION"].started_at is None
    notes = await pending_notes(rest, actors.values())
    assert sorted(notes.values()) == [
        "no node has more than {CPU: 4}",
        "the actor's placement group e7aec123 is PENDING, INFEASIBLE",
    ]
    assert await placed(rest, [], known) == [] and not known


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (401, "Unauthorized: Missing authentication token", "requires a token"),
        (403, "Forbidden: Invalid authentication token", "rejected the token"),
        (200, "<html>", "not JSON"),
        (200, "[]", "GET /api/v0/actors returned 200"),
        (200, '{"data": {"result": null}}', "returned no list"),
        (500, '{"result": false, "msg": "GCS is gone"}', r"500 \(GCS is gone\)"),
    ],
)
async def test_wrong_answers_are_told(dashboard: Any, status: int, text: str, words: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text)

    rest = await dashboard(answer)
    with pytest.raises(RayError, match=words):
        await rest.actors()


async def test_nobody_there_and_no_token(dashboard: Any, tmp_path: Path, unused_tcp_port: int) -> None:
    http = Http()
    base = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(RayError, match="refused the connection"):
        await RayRest(http, base).actors()
    with pytest.raises(RayError, match="cannot read Ray's token"):
        await RayRest(http, base, tmp_path / "token").actors()
    await http.close()


async def test_the_token_is_sent(dashboard: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    async def answer(request: web.Request) -> web.StreamResponse:
        ok = request.headers.get("Authorization") == "Bearer secret"
        return web.json_response({"ray_version": "2.60.0" if ok else "none"})

    rest = await dashboard(answer, tmp_path / "token")
    assert await rest.version() == "2.60.0"
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": " secret\n"}
    rest = await dashboard(answer, variable_token(env))
    assert await rest.version() == "2.60.0"


@pytest.mark.parametrize(
    ("env", "known"),
    [
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "secret"}, True),
        ({"RAY_AUTH_MODE": "Token", "RAY_AUTH_TOKEN": "secret"}, True),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": " "}, False),
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"}, False),
        ({"RAY_AUTH_TOKEN": "secret"}, False),
        ({"RAY_AUTH_MODE": "token"}, False),
    ],
)
async def test_a_token_in_a_variable_is_named_and_never_shown(
    env: dict[str, str], known: bool, dashboard: Any
) -> None:
    token = variable_token(env)
    assert (token is not None) == known
    if token is None:
        return
    assert "secret" not in repr(token)

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=403, text="Forbidden")

    with pytest.raises(RayError, match=r"rejected the token .*; check the token in RAY_AUTH_TOKEN$"):
        await (await dashboard(refuse, token)).version()


async def test_a_list_that_ray_cuts_is_asked_for_by_state(dashboard: Any) -> None:
    """With many dead actors, the living ones may be cut off."""
    living = {"actor_id": "z", "name": "vllm_server_0_0", "state": "ALIVE"}
    dead = [{"actor_id": str(i), "name": "x", "state": "DEAD"} for i in range(3)]

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["limit"] == str(LIMIT)
        values = request.query.getall("filter_values")
        rows = dead if "ALIVE" not in values else [living]
        total = 10_004 if len(values) == 1 else len(rows)
        about = {"total": total, "num_after_truncation": len(rows), "num_filtered": len(rows), "result": rows}
        return web.json_response({"result": True, "data": {"result": about}})

    rest = await dashboard(answer)
    assert [a.name for a in await rest.actors() if a.state == "ALIVE"] == ["vllm_server_0_0"]
