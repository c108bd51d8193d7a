"""Requests that can change the weights of ``vllm serve``: from the guard of its port to the alert. Simulated: the
replicas are no vLLM (``kit.vllm_like``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.runs import ToyRun
from kit.symptoms import proof
from kit.vllm_like import ask, run_of, token_of
from kit.waiting import wait_until

pytestmark = pytest.mark.stack


def test_a_request_that_changes_weights_is_an_alert_until_the_replica_is_restarted(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    run = ending(run_of(tmp_path, 2))
    run.start()
    for name in ("replica-0", "replica-1"):
        run.until(name, "ready", 120)
    token = token_of(run)
    port = run.service("replica-1").ports["http"]
    url = f"http://127.0.0.1:{port}"

    def alerts() -> dict[str, tuple[str, ...]]:
        return {s.id: proof(s) for s in run.snapshot().symptoms if s.id.startswith("weights_requested")}

    def polled() -> bool:
        items = {r.name: r.engine.running for r in run.snapshot().replicas.items}
        return items == {"replica-0": 0, "replica-1": 0}

    assert ask(f"{url}/update_weights", "POST", "wrong") == 401
    assert ask(f"{url}/start_weight_update", "POST", token) == 404, "as without the development mode"
    assert ask(f"{url}/update_weights", "GET", token) == 405
    wait_until(polled, what="metrics of both replicas")
    assert alerts() == {}
    assert [ask(f"{url}/update_weights", "POST", token) for _ in range(2)] == [200, 200]
    found = wait_until(alerts, what="the alert")
    assert found is not None and list(found) == ["weights_requested:replica-1"]
    wait_until(
        lambda: "requests since its start: /update_weights (2)" in alerts()["weights_requested:replica-1"]
    )
    log = (run.run_dir / str(run.service("replica-1").log)).read_text()
    assert '"POST /update_weights HTTP/1.1" 200' in log and '"POST /update_weights HTTP/1.1" 401' in log
    assert "GET /metrics" not in log and "GET /health" not in log, "the backend's own polls"
    run.command("restart", service="replica-1")
    wait_until(lambda: not alerts(), what="the end of the alert")
    assert [e.service for e in run.events() if e.kind == "symptom" and "change its weights" in e.text]
