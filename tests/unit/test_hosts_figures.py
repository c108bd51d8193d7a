"""What Ray's agents measure on the hosts of a run: the recorded answer of a dashboard with two real nodes.

These had no GPU; those of the tests have the form that Ray 2.60 gives them (``GpuUtilizationInfo``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from liverl.hosts.figures import Figures
from liverl.model import OLD_S, NodeStatus
from liverl.supervise.services.probes import Http
from liverl.verl.discovery.ray_rest import RayError, RayFigures, RayRest

RECORDED = Path(__file__).parents[1] / "data/recordings/ray_rest/nodes_summary.json"
SECOND = "c3a8b4e14a076a3ca6a9ca20d480503615c3cf15d67f9a22547a42b7"
N1 = NodeStatus("n1", "10.77.0.11", SECOND, "ready", "", 0.0)


def answer(gpus: list[dict[str, Any]] | None = None, workers: tuple[int, ...] = (), **fields: Any) -> Any:
    reply = json.loads(RECORDED.read_text())
    for node in reply["data"]["summary"]:
        if node["hostname"] == "n1":
            node |= fields
            node["gpus"] = gpus
            node["raylet"]["coreWorkersStats"] = [{"pid": pid} for pid in workers]
    return reply


def one(**fields: Any) -> dict[str, Any]:
    told = {"index": 0, "uuid": "GPU-a", "name": "NVIDIA H200", "utilizationGpu": 97, "memoryUsed": 120000}
    more = {
        "memoryTotal": 143771,
        "processesPids": {"41": {"pid": 41}},
        "powerMw": 612000,
        "temperatureC": 61,
    }
    return told | more | fields


async def told(reply: Any, status: int = 200) -> dict[str, RayFigures]:
    """What a dashboard tells that answers so."""
    asked: list[str] = []

    async def nodes(request: web.Request) -> web.Response:
        asked.append(request.query_string)
        text = reply if isinstance(reply, str) else json.dumps(reply)
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_get("/nodes", nodes)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    http = Http()
    try:
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return await RayRest(http, f"http://127.0.0.1:{port}").figures()
    finally:
        await http.close()
        await runner.cleanup()
        assert asked == ["view=summary"]


async def test_a_hosts_figures_are_those_of_its_agent() -> None:
    figures = Figures()
    figures.take(await told(json.loads(RECORDED.read_text())), 50.0)
    missing = NodeStatus("", "", "", "missing", "no host has joined yet", 0.0)
    node, other = figures.added((N1, missing))
    assert other == missing
    assert (node.name, node.state, node.cpu_percent) == ("n1", "ready", 94.2)
    assert (node.memory_used, node.memory_total, node.shm_used) == (2445381632, 25276514304, 9015296)
    assert (node.disk_free, node.disk_total, node.measured_at) == (77599547392, 270553174016, 50.0)
    assert figures.gpus((N1,), 50.0) == ()


async def test_figures_that_the_agent_does_not_renew_become_old() -> None:
    figures = Figures()
    figures.take(await told(answer([one()])), 50.0)
    figures.take(await told(answer([one()])), 60.0)  # the same measurement once more
    (node,) = figures.added((N1,))
    assert node.measured_at == 50.0
    assert not node.old(50.0 + OLD_S) and node.old(50.1 + OLD_S)
    (gpu,) = figures.gpus(figures.added((N1,)), 50.1 + OLD_S)
    assert (gpu.utilization, gpu.power_w, gpu.temperature_c) == (None, None, None)
    assert gpu.memory_used == 120000 << 20
    figures.take(await told(answer([one()], now=1795332322.9)), 71.0)
    (node,) = figures.added((N1,))
    assert node.measured_at == 71.0
    figures.take({}, 72.0)  # Ray tells nothing of a node that is gone
    (gpu,) = figures.gpus(figures.added((NodeStatus("n1", "10.77.0.11", SECOND, "lost", "", 72.0),)), 72.0)
    assert (gpu.node, gpu.utilization) == ("n1", None)


@pytest.mark.parametrize(
    ("fields", "workers", "owner"),
    [
        ({}, (41,), "trainer"),
        ({}, (), "unknown (other host)"),
        ({"processesPids": None, "memoryUsed": 4}, (41,), "free"),
        ({"processesPids": None}, (41,), "unknown (other host)"),
        ({"processesPids": None, "memoryUsed": None}, (41,), "unknown (other host)"),
    ],
)
async def test_who_has_a_gpu_of_another_host(
    fields: dict[str, Any], workers: tuple[int, ...], owner: str
) -> None:
    figures = Figures()
    figures.take(await told(answer([one(**fields)], workers)), 50.0)
    (gpu,) = figures.gpus((N1,), 50.0)
    assert (gpu.node, gpu.index, gpu.owner, gpu.utilization, gpu.power_w) == ("n1", 0, owner, 0.97, 612.0)


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        ("<html>", 200, "tells the nodes' figures in another form"),
        ({"data": {"summary": 3}}, 200, "tells the nodes' figures in another form"),
        ({"data": {"summary": [{"gpus": [{"index": "a"}]}]}}, 200, "in another form: .*gpus"),
        ("broken", 500, "GET /nodes returned 500 \\(broken\\)"),
    ],
)
async def test_an_answer_of_another_form_is_an_error(reply: Any, status: int, words: str) -> None:
    with pytest.raises(RayError, match=words):
        await told(reply, status)
