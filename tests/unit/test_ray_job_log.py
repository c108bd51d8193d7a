"""The log of a Ray job that is longer than what is kept of it. The server is simulated, the answers are as Ray's."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from liverl.external import ray_job
from liverl.model import Result, SubmittedJob
from liverl.offline.job_end import judge_job
from liverl.plan.spec import NotifyPlan, NotifyTarget, Plan
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
    told = ray_job.JobSteps("raysubmit_1", address).look(ray_job.RayJob("RUNNING"), 1.0)
    assert (told.total, told.step) == (90, 7)


def a_run(folder: Path, notify: NotifyPlan | None = None) -> RunDir:
    run = RunDir(folder)
    run.logs(1).mkdir(parents=True)
    plan = Plan(
        "p/n", str(folder), "managed", (), (), None, expected_replicas=0, notify=notify or NotifyPlan()
    )
    run.plan.write_bytes(msgspec.json.encode(plan))
    return run


def stopped(address: str) -> Result:
    return Result("stopped", 5, None, 0, 0.0, 1.0, job=SubmittedJob("ray", "raysubmit_1", address))


DONE = "Total training steps: 1\nstep:1 - training/global_step:1 - x:0.5\n"


@pytest.mark.parametrize(
    ("events", "state"), [(("done",), "done"), (("failed",), "failed"), (("failed",), "done")]
)
def test_the_end_of_a_job_that_is_judged_later_is_told_once(
    events: tuple[str, ...], state: str, served: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, answer = served
    answer["logs"] = DONE if state == "done" else "Total training steps: 9\n"
    got = tmp_path / "got.txt"
    target = NotifyTarget("command", ("/bin/sh", "-c", f"cat >> {got}; echo >> {got}"))
    run = a_run(tmp_path / "run", NotifyPlan((target,), events))
    before = stopped(address)
    run.result.write_bytes(msgspec.json.encode(before))
    now = ray_job.RayJob("SUCCEEDED" if state == "done" else "FAILED")
    said: list[str] = []
    judged = judge_job(run, before, now, said.append)
    assert judged.state == state and run.read_result() == judged
    if state not in events:
        assert not got.exists() and said == []
        return
    assert judge_job(run, before, now, said.append) == judged, "another command, with what it read before"
    told = [json.loads(line) for line in got.read_text().splitlines()]
    assert [one["event"] for one in told] == [state] and "the Ray job raysubmit_1 has ended" in told[0][
        "text"
    ]
    assert len(said) == 1 and said[0].startswith(f"{state}: sent to command /bin/sh")
    assert list(run.notify.iterdir()) == []


def test_a_newer_result_is_not_overwritten(served: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    address, answer = served
    answer["logs"] = DONE
    run = a_run(tmp_path)
    newer = Result("done", 0, None, 9, 2.0, 3.0, attempt=2)
    run.result.write_bytes(msgspec.json.encode(newer))
    assert judge_job(run, stopped(address), ray_job.RayJob("SUCCEEDED")) == newer
    assert run.read_result() == newer


def test_a_run_with_a_living_backend_is_not_judged_from_outside(
    served: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, answer = served
    answer["logs"] = DONE
    run, before = a_run(tmp_path), stopped(address)
    run.result.write_bytes(msgspec.json.encode(before))
    with run.lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ray_job.RayJobError, match="a backend of the run is alive"):
            judge_job(run, before, ray_job.RayJob("SUCCEEDED"))
    assert run.read_result() == before


def test_the_steps_of_a_job_are_read_from_the_end_of_its_log() -> None:
    """The server is simulated; it answers as Ray 2.60 does."""
    log = ["Total training steps: 90", *(f"step:{n} - training/global_step:{n} - x:0.5" for n in range(1, 4))]
    asked: list[str] = []
    tails = True

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            asked.append(url.path)
            if url.path == "/api/v0/logs/file":
                query = parse_qs(url.query)
                assert query["node_id"] == ["ab12"] and query["submission_id"] == ["raysubmit_1"]
                lines = log[-int(query["lines"][0]) :]
                self.send_response(200 if tails else 500)
                data = "\n".join(lines).encode()
            else:
                self.send_response(200)
                data = json.dumps({"logs": "\n".join(log)}).encode()
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    whole, tail = "/api/jobs/raysubmit_1/logs", "/api/v0/logs/file"
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        steps = ray_job.JobSteps("raysubmit_1", f"http://127.0.0.1:{server.server_port}")
        now = ray_job.RayJob("RUNNING", "", "ab12")
        assert (steps.look(now, 100.0).step, steps.look(now, 100.0).total) == (3, 90) and asked == [whole]
        log += [f"step:{n} - training/global_step:{n} - x:0.5" for n in range(4, 3000)]
        assert steps.look(now, 101.0).step == 3 and asked == [whole], "it is not asked at each look"
        told = steps.look(now, 200.0)
        assert (told.step, told.total, asked) == (2999, 90, [whole, tail])
        tails = False
        log.append("step:3000 - training/global_step:3000 - " + "x" * (60 * ray_job.PER_SECOND))
        assert steps.look(now, 300.0).step == 3000 and asked[2:] == [tail, whole]
        assert steps.look(now, 340.0).step == 3000 and len(asked) == 4, "a long log is asked for seldom"
        steps.look(now, 400.0)
        assert len(asked) == 6
        server.shutdown()


def test_the_result_of_a_job_holds_no_secret(served: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    address, answer = served
    secret = "hf_" + "aB3" * 11
    run = a_run(tmp_path)
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
