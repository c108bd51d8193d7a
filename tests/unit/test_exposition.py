"""Metrics for Prometheus: their names and values, the page and the dashboard that name them, and their server."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from kit.crowd import Crowd
from kit.screens import NOW, gpu, replica, service, snapshot, through_sessions
from prometheus_client.parser import text_string_to_metric_families

from liverl.config import load_config, resolved
from liverl.exposition import server as metrics_server
from liverl.exposition.series import SERIES, UP, UP_HELP, exposition
from liverl.exposition.server import AGAIN_S, HOST, LOOK_S, MetricsServer, Unusable, read_token
from liverl.model import DiskStatus, EarlierTrials, Snapshot, Symptom, TrialsStatus
from liverl.plan import make_plan
from liverl.plan.spec import Plan
from liverl.preflight.metrics import checks
from liverl.util.token_guard import Token
from liverl_tui.cli import main as cli

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "prometheus"
PAGE = ROOT / "docs" / "prometheus.md"
TOKEN = "a-token-of-the-test"


def samples(seen: Snapshot, *, live: bool = True) -> dict[str, float]:
    """``name{label="value"}`` without the run -> value, by Prometheus's own parser."""
    found = {}
    for family in text_string_to_metric_families(exposition(seen, live=live).decode()):
        for one in family.samples:
            assert one.labels.pop("run") == seen.run
            labels = ",".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
            found[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return found


def test_values() -> None:
    alert = Symptom("disk_low", "critical", "t", "c", "f")
    seen = snapshot(gpus=(gpu(0),), symptoms=(alert,), disk=DiskStatus(100, 25, None, 3600.0))
    found = samples(seen)
    for name, value in {
        "up": 1,
        "run_state{state=running}": 1,
        "run_state{state=failed}": 0,
        "training_step": 7,
        "training_planned_steps": 20,
        "training_metric{chart=reward}": 0.512,
        "training_metric{chart=seconds_per_step}": 3.4,
        "trials{state=finished}": 119,
        "service_state{kind=proxy,service=proxy,state=ready}": 1,
        "service_state{kind=proxy,service=proxy,state=failed}": 0,
        "service_cpu_usage_cores{kind=replica,service=r0}": 0.125,
        "service_resident_memory_bytes{kind=replica,service=r0}": 300 << 20,
        "replicas_listed": 2,
        "replica_kv_cache_usage_ratio{node=,replica=r0}": 0.31,
        "replica_generation_tokens_total{node=,replica=r1}": 912_000,
        "requests_total{carrier=proxy}": 1031,
        "gpu_utilization_ratio{gpu=0,node=,uuid=GPU-00000000}": 0.97,
        "host_cpu_usage_ratio": 0.41,
        "disk_full_after_seconds": 3600,
        "alerts{severity=critical}": 1,
        "alerts{severity=warning}": 0,
        "alert_active{alert=disk_low,severity=critical}": 1,
    }.items():
        assert found[f"liverl_{name}"] == pytest.approx(value), name
    assert samples(seen, live=False)["liverl_up"] == 0
    assert samples(through_sessions())["liverl_requests_total{carrier=sessions}"] == 817


def test_discarded_trials_are_told_apart() -> None:
    """Those of a step that a resumed run began again: the interface leaves them out, and both can be had from here."""
    gone = EarlierTrials(total=5, finished=3, cut_off=2, zero_tool_calls=1)
    trials = TrialsStatus(total=30, running=4, finished=22, cut_off=4, zero_tool_calls=6, earlier=gone)
    found = samples(snapshot(trials=trials))
    for state, every, left_out in (("running", 4, 0), ("finished", 22, 3), ("cut_off", 4, 2)):
        labels = f"{{state={state}}}"
        assert (found[f"liverl_trials{labels}"], found[f"liverl_trials_discarded{labels}"]) == (
            every,
            left_out,
        )
    assert found["liverl_trials_without_tool_calls"] == 6
    assert found["liverl_trials_discarded_without_tool_calls"] == 1


def test_what_is_not_known_has_no_sample() -> None:
    """A dashboard must not draw a zero that nobody has measured."""
    bare = snapshot(step=None, metrics=None, total_steps=None, policy_version=None, gpus=(), disk=None)
    bare = msgspec.structs.replace(
        bare,
        replicas=msgspec.structs.replace(bare.replicas, items=(replica(0, kv_cache_usage=None),)),
        services=(
            service("r0", "replica", tree=msgspec.structs.replace(bare.services[1].tree, cpu_percent=None)),
        ),
    )
    found = " ".join(samples(bare))
    for name in ("training_", "policy_version ", "gpu_", "disk_", "kv_cache", "cpu_usage_cores"):
        assert name not in found, name
    assert "liverl_replica_running_requests{node=,replica=r0}" in found


def test_what_is_on_a_host_says_on_which() -> None:
    """GPU 0 and its series exist once for each host; a lost host's figures are not those of now."""
    seen = Crowd(hosts=4, gpus=32, replicas=8, lost=2).snapshot(NOW)
    found = samples(seen)
    for node in ("n0", "n1", "n3"):
        uuids = [one.uuid for one in seen.gpus if one.node == node]
        assert len(uuids) == 8
        for index, uuid in enumerate(uuids):
            assert f"liverl_gpu_utilization_ratio{{gpu={index},node={node},uuid={uuid}}}" in found
        assert f"liverl_node_memory_used_bytes{{node={node}}}" in found
        assert found[f"liverl_node_state{{node={node},state=ready}}"] == 1
    assert "liverl_replica_running_requests{node=n3,replica=vllm_server_6_0}" in found
    assert not any("nodes_expected" in name for name in found), (
        "lost hosts that were replaced are listed, too"
    )
    assert found["liverl_node_state{node=n2,state=lost}"] == 1
    assert found["liverl_node_state{node=n2,state=ready}"] == 0
    assert not any(name.startswith("liverl_node_memory") and "node=n2" in name for name in found)
    assert "liverl_node" not in " ".join(samples(snapshot())), "a run on one host has none"


def test_a_host_that_has_not_joined_and_one_that_came_back() -> None:
    seen = Crowd(hosts=3, gpus=24, replicas=6).snapshot(NOW)
    lost = msgspec.structs.replace(seen.nodes[1], id="before", state="lost")
    missing = msgspec.structs.replace(seen.nodes[2], name="", state="missing", measured_at=None)
    found = samples(msgspec.structs.replace(seen, nodes=(seen.nodes[0], lost, seen.nodes[1], missing)))
    assert found["liverl_node_state{node=n1,state=ready}"] == 1
    assert not any("node=," in name and "liverl_node" in name for name in found)


def test_names_follow_the_conventions() -> None:
    """https://prometheus.io/docs/practices/naming/"""
    assert len({series.name for series in SERIES}) == len(SERIES)
    for series in SERIES:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", series.name), series.name
        assert series.name.endswith("_total") == (series.kind == "counter"), series.name
        assert not re.search(r"_(percent|ms|milliseconds|kb|mb|gb|minutes|count|sum|bucket)\b", series.name)
        assert series.help[0].isupper() or series.help[0].isdigit()
        assert series.help.endswith(".") and "\n" not in series.help
        assert "run" not in series.labels


def test_names_of_others_are_escaped() -> None:
    text = 'a"b\\c\nliverl_up{run="forged"} 7'
    seen = snapshot(services=(service(text, "task"),))
    families = list(text_string_to_metric_families(exposition(seen, live=True).decode()))
    assert [one.value for family in families if family.name == UP for one in family.samples] == [1]
    assert text in {one.labels.get("service") for family in families for one in family.samples}


# -- what names them


def table() -> str:
    rows = [
        (UP, "gauge", "", UP_HELP),
        *((s.full_name, s.kind, ", ".join(f"`{x}`" for x in s.labels), s.help) for s in SERIES),
    ]
    return "".join(f"| `{name}` | {kind} | {labels} | {text} |\n" for name, kind, labels, text in rows)


def test_the_page_lists_them(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text("utf-8")
    head, rule, rows = text.partition("| metric | kind | labels | meaning |\n|---|---|---|---|\n")
    if request.config.getoption("--update-documents"):
        rows = table()
        PAGE.write_text(head + rule + rows, "utf-8")
    assert rows == table(), "if this is meant: --update-documents"


_NAME = re.compile(r"\bliverl_\w+")
_SELECTOR = re.compile(r"\b(liverl_\w+)\{([^}]*)\}")


def unknown(expression: str) -> list[str]:
    """Names and labels in a query that we do not export."""
    labels = {UP: {"run"}} | {series.full_name: {"run", *series.labels} for series in SERIES}
    wrong = [name for name in _NAME.findall(expression) if name not in labels]
    for name, inside in _SELECTOR.findall(expression):
        named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
        wrong += [f"{name}: {label}" for label in named - labels.get(name, named)]
    return wrong


def queries() -> dict[str, str]:
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel["targets"]
    }
    found |= {
        f"variable {one['name']}": one["definition"]
        for one in board["templating"]["list"]
        if "definition" in one
    }
    rules = yaml.safe_load((EXAMPLE / "alerts.yml").read_text())["groups"][0]["rules"]
    return found | {rule["alert"]: rule["expr"] for rule in rules}


@pytest.mark.parametrize("name", queries())
def test_each_query_of_dashboard_and_alerts_names_what_we_export(name: str) -> None:
    query = queries()[name]
    assert _NAME.search(query) or query == 'up{job="liverl"} == 0'
    assert unknown(query) == []


def test_a_wrong_query_is_found() -> None:
    assert unknown("rate(liverl_request_total[5m])") == ["liverl_request_total"]
    assert unknown('liverl_trials{run="x",phase="running"}') == ["liverl_trials: phase"]


def test_no_two_panels_lie_on_each_other() -> None:
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    cells = [
        (x, y)
        for panel in board["panels"]
        for place in (panel["gridPos"],)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) == 23


# -- the server


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def say(self, kind: str, text: str, level: Any) -> None:
        self.events.append((kind, text, level))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def never() -> Path:
    raise AssertionError("the run's own token is not asked for")


@asynccontextmanager
async def serving(told: Told) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(snapshot, told.say)
    try:
        yield server
    finally:
        await server.close()


async def get(port: int, token: str | None, path: str = "/metrics") -> tuple[int, str, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{HOST}:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def free() -> int:
    """A port that was free a moment ago."""
    told = Told()
    async with serving(told) as server:
        return await server.listen(0, Token("x" * 20), Path("x"))


async def test_it_answers_those_who_have_the_token(token_file: Path) -> None:
    told, port = Told(), await free()
    async with serving(told) as server:
        assert await server.look(port, str(token_file), never) == LOOK_S
        status, text, kind = await get(port, TOKEN)
        assert status == 200 and kind.startswith("text/plain; version=")
        assert 'liverl_training_step{run="liverl/first"} 7.0' in text
        for wrong in (None, "", "another-token-of-it", TOKEN[:-1]):
            status, text, _ = await get(port, wrong)
            assert status == 401 and str(token_file) in text and TOKEN not in text
        assert (await get(port, TOKEN, "/"))[0] == 404
        assert await server.look(port, str(token_file), never) == LOOK_S
        assert [level for _, _, level in told.events] == ["info"], "once"
        assert TOKEN not in repr(told.events)


async def test_a_port_that_is_taken_is_told_once_and_tried_again(token_file: Path) -> None:
    told, other = Told(), Told()
    port = await free()
    async with serving(told) as server:
        async with serving(other) as first:
            await first.look(port, str(token_file), never)
            for _ in range(2):
                assert await server.look(port, str(token_file), never) == AGAIN_S
        ((kind, text, level),) = told.events
        assert (kind, level) == ("metrics", "warning")
        assert f"port {port} of 127.0.0.1: Address already in use" in text and "observe.metrics_port" in text
        assert await server.look(port, str(token_file), never) == LOOK_S
        assert (await get(port, TOKEN))[0] == 200


async def test_another_port_and_none_are_taken_up_while_it_serves(token_file: Path, tmp_path: Path) -> None:
    told = Told()
    first, second = await free(), await free()
    async with serving(told) as server:
        await server.look(first, str(token_file), never)
        own = tmp_path / "own"
        own.write_text("the-run's-own-token-1")
        own.chmod(0o600)
        await server.look(second, "", lambda: own)
        assert (await get(second, "the-run's-own-token-1"))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(first, TOKEN)
        await server.look(0, "", never)
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(second, "the-run's-own-token-1")


def damage(path: Path, how: str) -> None:
    match how:
        case "readable":
            path.chmod(0o644)
        case "gone":
            path.unlink()
        case "short":
            path.write_text("short")
        case "two words":
            path.write_text("two words that are long")
        case "no text":
            path.write_bytes(b"\xff" * 40)
        case "huge":
            path.write_bytes(b"x" * 5000)
        case "directory":
            path.unlink()
            path.mkdir()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("readable", "other users can read"),
        ("gone", "No such file or directory"),
        ("short", "holds no token"),
        ("two words", "holds no token"),
        ("no text", "holds no token"),
        ("huge", "larger than 4 KiB"),
        ("directory", "cannot read"),
    ],
)
async def test_a_bad_token_file_is_named_and_nothing_is_served(
    how: str, words: str, token_file: Path
) -> None:
    damage(token_file, how)
    told, port = Told(), await free()
    async with serving(told) as server:
        assert await server.look(port, str(token_file), never) == AGAIN_S
        ((_, text, level),) = told.events
        assert (
            level == "warning" and words in text and str(token_file) in text and "two words that" not in text
        )
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(port, TOKEN)
    check = checks(plan_with(port, token_file))
    assert check.status == "warn" and words in check.text


def plan_with(port: int, token_file: Path) -> Plan:
    sets = ["run.name=n", f"observe.metrics_port={port}", f"observe.metrics_token_file={token_file}"]
    loaded = load_config(sets=sets, env={})
    config = resolved(loaded.config, env={}, cwd=Path("/w"), now=0.0)
    return make_plan(msgspec.structs.replace(loaded, config=config), Path("/runs/p/n"))


async def test_check_names_who_holds_the_port(token_file: Path) -> None:
    told, port = Told(), await free()
    plan = plan_with(port, token_file)
    assert checks(plan).status == "ok"
    async with serving(told) as server:
        await server.look(port, str(token_file), never)
        held = checks(plan)
        assert (
            held.status == "warn" and f"port {port} is held by" in held.text and str(os.getpid()) in held.text
        )


def test_a_file_of_another_user_is_refused(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(Unusable, match="belongs to uid"):
        read_token(token_file)


def test_only_the_loopback_address_is_listened_on() -> None:
    assert metrics_server.HOST == "127.0.0.1"


@pytest.mark.parametrize("more", ["--json", "--watch"])
def test_the_command_prints_one_form(more: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "--prometheus", more]) == 2
    assert "--prometheus goes with neither" in capsys.readouterr().err
