"""The real Prometheus scrapes a run with the files of ``examples/prometheus``; every dashboard query has a series.

Debian has it as a package, ``prometheus``. The run trains with our own embedded components; the GPU is SIMULATED, in
the page of a second run.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kit.ports import free_port
from kit.processes import stop_process
from kit.runs import ToyRun
from kit.screens import gpu, snapshot
from kit.waiting import wait_until

from liverl.exposition.series import exposition

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("prometheus") and shutil.which("promtool")),
        reason="prometheus and promtool are not installed (Debian: apt-get install prometheus)",
    ),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "prometheus"
TOKEN = "a-token-of-this-test-12345"
MANY = 100_000  # steps: more than the test waits for
SMALL = (
    "infrastructure.litellm_port=0",
    "training.train_batch_size=2",
    "training.n_resp_per_prompt=2",
    "training.train_prompt_mini_batch_size=2",
    f"training.total_steps={MANY}",
    "embedded.turn_latency=0.02",
)


def promtool(*words: str | Path, stdin: bytes | None = None) -> str:
    """What promtool says; it must say that all is well."""
    done = subprocess.run(
        ["promtool", *map(str, words)],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said


class Prometheus:
    """A Prometheus with the example's files, of which only addresses, intervals and the token's path are others."""

    def __init__(self, folder: Path, token: Path, targets: list[str]) -> None:
        config = yaml.safe_load((EXAMPLE / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(token)
        (fixed,) = job["static_configs"]
        fixed["targets"] = targets
        shutil.copy(EXAMPLE / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        promtool("check", "config", folder / "prometheus.yml")
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / "prometheus.log"
        command = [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={self.address}",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path: str, **query: str) -> Any:
        """The ``data`` of an answer of its API; None while it is not ready."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                return None
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from error
        except urllib.error.URLError:
            assert self.process.poll() is None, self.log.read_text()
            return None

    def series(self, query: str) -> list[dict[str, Any]]:
        found = self.ask("query", query=query)
        return [] if found is None else list(found["result"])


def queries() -> list[str]:
    """Every query of the dashboard, with all runs chosen."""
    dashboard = json.loads((EXAMPLE / "dashboard.json").read_text())
    chosen = next(one for one in dashboard["templating"]["list"] if one["name"] == "run")
    return [
        target["expr"].replace("$run", chosen["allValue"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.fixture
def with_a_gpu() -> Iterator[str]:
    """Host and port of the page of a run with a GPU."""
    page = exposition(snapshot(gpus=(gpu(0),)), live=True)

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(page if allowed else b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(TOKEN)
    return path


@pytest.fixture
def training(tmp_path: Path, token: Path) -> Iterator[tuple[ToyRun, str]]:
    """A run that trains, and host and port of its metrics."""
    port = free_port()
    sets = (*SMALL, f"observe.metrics_port={port}", f"observe.metrics_token_file={token}")
    command = [sys.executable, "-m", "liverl_tui", "up", "--no-ui", "--name", "scraped"]
    run = ToyRun(tmp_path / "runs" / "liverl" / "scraped")
    with open(tmp_path / "up.log", "wb") as log:
        up = subprocess.Popen(
            [*command, *(word for one in sets for word in ("--set", one))],
            env={**os.environ, "LIVERL_RUN__RUN_ROOT": str(tmp_path / "runs")},
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        second_step = run.run_dir / "trials" / "step_0002"
        wait_until(lambda: second_step.exists() or up.poll() is not None, 300, "the second step")
        assert up.poll() is None, (tmp_path / "up.log").read_text()
        yield run, f"127.0.0.1:{port}"
    finally:
        run.end()
        up.kill()
        up.wait()


@pytest.fixture
def prometheus(
    tmp_path: Path, token: Path, training: tuple[ToyRun, str], with_a_gpu: str
) -> Iterator[Prometheus]:
    server = Prometheus(tmp_path, token, [training[1], with_a_gpu])
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(60)


def test_every_query_of_the_dashboard_has_a_series(
    prometheus: Prometheus, training: tuple[ToyRun, str]
) -> None:
    run, address = training
    answered: set[str] = set()

    def all_but(left_out: str) -> bool:
        wanted = [query for query in queries() if left_out not in query]
        answered.update(query for query in wanted if query not in answered and prometheus.series(query))
        return answered.issuperset(wanted)

    not_ready = "gave_up"  # the one query that is empty while all is well
    wait_until(lambda: all_but(not_ready), what="a series of every query")
    assert {one["metric"]["run"] for one in prometheus.series(f'liverl_up{{instance="{address}"}} == 1')} == {
        "liverl/scraped"
    }
    assert not [
        one
        for one in prometheus.series(next(query for query in queries() if not_ready in query))
        if one["metric"]["run"] == "liverl/scraped"
    ]
    before = float(prometheus.series(f'liverl_training_step{{instance="{address}"}}')[0]["value"][1])
    wait_until(
        lambda: (
            float(prometheus.series(f'liverl_training_step{{instance="{address}"}}')[0]["value"][1]) > before
        ),
        what="another step",
    )

    replica = run.service("replica-1").pid
    assert replica is not None
    stop_process(replica)
    try:
        wait_until(lambda: all_but("no query is left out"), what="the service that is not ready")
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(replica).send_signal(signal.SIGCONT)


def test_the_example_s_alerts(prometheus: Prometheus, training: tuple[ToyRun, str]) -> None:
    """They are well-formed, ask for metrics that exist, and one fires when the run has gone."""
    run, address = training
    said = promtool("check", "rules", EXAMPLE / "alerts.yml")
    assert "SUCCESS: 4 rules found" in said

    def health() -> dict[str, str]:
        groups = (prometheus.ask("rules") or {"groups": []})["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    wait_until(lambda: len(health()) == 4 and set(health().values()) == {"ok"}, what="the four rules' health")
    wait_until(lambda: prometheus.series(f'up{{instance="{address}"}} == 1'), what="a scrape")
    run.command("stop")
    run.result()
    pending = f'ALERTS{{alertname="LiverlRunGone",instance="{address}",alertstate="pending"}}'
    wait_until(lambda: prometheus.series(pending), what="the alert")


def test_promtool_finds_nothing_wrong_with_the_page(training: tuple[ToyRun, str]) -> None:
    """Its lint knows the conventions of names, units and help."""
    request = urllib.request.Request(
        f"http://{training[1]}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read()
    assert b"liverl_training_step{" in page
    assert promtool("check", "metrics", stdin=page) == ""
