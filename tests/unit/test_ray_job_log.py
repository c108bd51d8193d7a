"""The log of a Ray job that is longer than what is kept of it. The server is simulated, the answers are as Ray's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import msgspec
import pytest

from liverl.external import ray_job
from liverl.model import Result, SubmittedJob
from liverl.offline.job_end import judge_job
from liverl.plan.spec import Plan
from liverl.rundir.layout import RunDir


@pytest.fixture
def served() -> Iterator[tuple[str, dict[str, str]]]:
    """The address, and what is answered."""
    answer = {"logs": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answer
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("lines", [1, 400, 4000, 40_000])
def test_a_long_log_is_told_by_its_two_ends(
    lines: int, served: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_job, "MOST", 1 << 15)
    monkeypatch.setattr(ray_job, "HEAD", 1 << 12)
    address, answer = served
    text = "".join(f'{number}: "é" C:\\new\\\\{"x" * (number % 7)}\n' for number in range(lines))
    answer["logs"] = f"Total training steps: 90\n{text}step:7 - training/global_step:7\n"
    log = ray_job.job_log("raysubmit_1", address)
    assert len(log) < 1 << 16
    assert set(log.splitlines()) - {ray_job.LEFT_OUT.strip()} <= set(answer["logs"].splitlines()), (
        "whole lines"
    )
    assert (ray_job.LEFT_OUT in log) == (lines > 1000)
    told = ray_job.job_told("raysubmit_1", address)
    assert (told.total, told.step) == (90, 7)


def test_the_result_of_a_job_holds_no_secret(served: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    address, answer = served
    secret = "hf_" + "aB3" * 11
    run = RunDir(tmp_path)
    run.logs(1).mkdir(parents=True)
    run.plan.write_bytes(
        msgspec.json.encode(Plan("p/n", str(tmp_path), "managed", (), (), None, expected_replicas=0))
    )
    answer["logs"] = f'Traceback (most recent call last):\n  File "/w/t.py", line 3\nRuntimeError: {secret}\n'
    job = SubmittedJob("ray", "raysubmit_1", address)
    before = Result("stopped", 5, None, 0, 0.0, 1.0, job=job)
    result = judge_job(run, before, ray_job.RayJob("FAILED", f"HF_TOKEN={secret}"))
    assert result.state == "failed" and result.cause is not None
    written = run.result.read_text()
    assert "RuntimeError" in written and "aB3" not in written and "aB3" not in repr(result)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n\xff",
    ],
)
def test_what_does_not_speak_as_ray_does_is_an_error_in_words(reply: bytes) -> None:
    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(reply)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(ray_job.RayJobError, match="answer"):
            ray_job.job_state("raysubmit_1", f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
