"""A real run serves its metrics, changes the port while it is live, and says the same in ``status --prometheus``."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kit.ports import free_port
from kit.runs import ToyRun, make_run, toy
from kit.waiting import wait_until

from liverl.plan.spec import Settings
from liverl_tui.cli import main as cli


def scrape(port: int, token: str) -> str | None:
    """What ``/metrics`` says; None while nothing listens."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError:
        return None


def status(run: ToyRun) -> str:
    command = [sys.executable, "-m", cli.__name__, "status", "--prometheus", str(run.run_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.parametrize("own", [True, False], ids=["the run's token", "a token of mine"])
def test_a_run_is_scraped(own: bool, tmp_path: Path) -> None:
    port = free_port()
    mine = tmp_path / "token"
    mine.write_text("a-token-of-mine-12345")
    mine.chmod(0o600)
    settings = Settings(
        scan_interval=0.3, stuck_after=5.0, metrics_port=port, metrics_token_file="" if own else str(mine)
    )
    run = make_run(tmp_path / "runs", [toy("task", "sleep")], settings=settings)
    try:
        run.start()
        run.until("task", "ready")
        path = run.run_dir / "secrets" / "metrics_token" if own else mine
        wait_until(path.exists, what="the token")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        text = wait_until(lambda: scrape(port, path.read_text().strip()), what="an answer")
        assert text is not None
        line = 'liverl_service_state{kind="task",run="p/n",service="task",state="ready"} 1.0'
        for said in (text, status(run)):
            assert line.replace("p/n", run.snapshot().run) in said
            assert "liverl_up{" in said and "} 1.0" in said.partition("liverl_up{")[2].splitlines()[0]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            scrape(port, "another-token-that-is-long")
        assert any(event["kind"] == "metrics" for event in events(run))
        run.command("stop")
        run.result()
        assert scrape(port, "x" * 20) is None, "nothing listens behind the run's end"
        assert status(run).partition("liverl_up{")[2].splitlines()[0].endswith(" 0.0")
    finally:
        run.end()


def events(run: ToyRun) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.run_dir / "events.jsonl").read_text().splitlines()]


def test_two_runs_with_one_port_both_go_on(tmp_path: Path) -> None:
    port = free_port()
    runs = [
        make_run(
            tmp_path / name,
            [toy("task", "sleep")],
            settings=Settings(scan_interval=0.3, stuck_after=5.0, metrics_port=port),
        )
        for name in ("a", "b")
    ]
    try:
        for run in runs:
            run.start()
            run.until("task", "ready")
        told = wait_until(
            lambda: [e for run in runs for e in events(run) if e["kind"] == "metrics" and e.get("level")],
            what="the event of the second",
        )
        assert told is not None
        ((event),) = told
        assert event["level"] == "warning" and f"port {port} of 127.0.0.1" in str(event["text"])
        assert [run.service("task").state for run in runs] == ["ready", "ready"]
    finally:
        for run in runs:
            run.end()
