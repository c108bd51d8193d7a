"""``join``, with a program of ours in the place of Ray's, which leaves processes behind as a raylet does."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from kit.joining_host import HEAD, Host, finish
from kit.joining_host import host as host
from kit.waiting import wait_until

from liverl.procs import procfs
from liverl.util.json_file import write_json


def test_a_signal_ends_the_tree_and_nothing_else(host: Host) -> None:
    host.tell("serve")
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        process = host.join()
        wait_until(host.joined)
        orphan = host.orphan()
        calls = (host.folder / "calls").read_text()
        assert calls.startswith(
            f"-m ray.scripts.scripts start --address {HEAD}:{host.head.getsockname()[1]} --block"
        )
        assert "--node-ip-address 127.0.0.1" in calls
        assert "--num-cpus 3" in calls
        variables = dict(
            line.partition("=")[::2] for line in (host.folder / "environment").read_text().splitlines()
        )
        assert (variables["VERL_X"], variables["RAY_AUTH_MODE"]) == ("1", "token")
        assert "RAY_ADDRESS" not in variables
        process.send_signal(signal.SIGTERM)
        code, _ = finish(process)
        assert code == 128 + signal.SIGTERM
        assert not procfs.alive(*orphan)
        assert bystander.poll() is None
        state = host.state()
        assert state is not None
        assert (state.state, state.why) == ("left", "told to stop")
    finally:
        bystander.kill()
        bystander.wait()


def test_the_end_of_the_run_ends_it(host: Host) -> None:
    host.tell("serve")
    process = host.join()
    wait_until(host.joined)
    orphan = host.orphan()
    result = {"state": "done", "exit_code": 0, "cause": None, "steps": 4, "started_at": 1.0, "ended_at": 2.0}
    write_json(host.run / "result.json", result | {"summary": "done"})
    code, words = finish(process)
    assert code == 0, words
    assert "run p/r has ended" in words
    assert not procfs.alive(*orphan)


def test_the_next_attempt_of_a_run_that_has_ended_is_waited_for(host: Host) -> None:
    host.tell("serve")
    result = {
        "state": "failed",
        "exit_code": 1,
        "cause": None,
        "steps": 4,
        "started_at": 1.0,
        "ended_at": 2.0,
    }
    write_json(host.run / "result.json", result | {"summary": "out of memory"})
    code, words = finish(host.join("--next", "--timeout", "1"))
    assert code == 3
    assert "gave up after 1 s waiting for the next attempt of run p/r, which has ended" in words
    assert not (host.folder / "calls").exists()
    process = host.join("--next")
    (host.run / "result.json").unlink()  # as the next attempt does
    wait_until(host.joined)
    write_json(host.run / "result.json", result | {"summary": "out of memory"})
    code, words = finish(process)
    assert code == 0
    assert words.endswith("run p/r has ended\n")


def test_what_may_pass_is_tried_again(host: Host) -> None:
    host.tell("Exception: The current node timed out during startup.", "serve")
    process = host.join()
    wait_until(host.joined)
    process.send_signal(signal.SIGINT)
    code, words = finish(process)
    assert code == 128 + signal.SIGINT
    assert "Ray did not start within its 30 s; is this host busy?; trying again" in words
    assert len((host.folder / "calls").read_text().splitlines()) == 2


def test_what_does_not_pass_is_said_at_once(host: Host) -> None:
    host.tell("AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing", "serve")
    code, words = finish(host.join())
    assert code == 3
    assert f"this host cannot join: the head refused the token in {host.token}" in words
    assert len((host.folder / "calls").read_text().splitlines()) == 1
    state = host.state()
    assert state is not None
    assert state.state == "refused"


def test_one_host_joins_once(host: Host) -> None:
    host.tell("serve")
    host.join()
    wait_until(host.joined)
    code, words = finish(host.join())
    assert code == 2
    assert "has already joined run p/r" in words


def test_a_path_that_this_host_does_not_see_is_waited_for(host: Host) -> None:
    model = host.folder / "model"
    host.tell("serve", paths={"model.model_path": str(model), "data.train_index": str(host.token)})
    process = host.join()

    def refused() -> str:
        state = host.state()
        return state.why if state is not None and state.state == "refused" else ""

    wait_until(refused)
    why = f"this host does not see {model} (model.model_path): No such file or directory"
    assert refused() == why
    assert not (host.folder / "calls").exists()
    model.mkdir()
    wait_until(host.joined)
    process.send_signal(signal.SIGTERM)
    _, words = finish(process)
    assert words.count(why) == 1


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"verl": "0.9.1.post1", "vllm": ""}, "verl 0.9.1.post1 (there: 0.9.1)"),
        ({"verl": "", "vllm": ""}, "verl is missing (there: 0.9.1)"),
        ({"verl": "0.9.1", "vllm": "0.24"}, "vllm 0.24 (there: not installed)"),
    ],
)
def test_other_versions_than_on_the_first_host_are_refused(
    host: Host, versions: dict[str, str], words: str
) -> None:
    host.tell("serve")
    host.has(versions)
    code, said = finish(host.join())
    assert code == 3
    why = f"{host.program} has other versions than on first: {words}"
    assert f"this host cannot join: {why}" in said
    state = host.state()
    assert state is not None
    assert (state.state, state.why) == ("refused", why)
    assert not (host.folder / "calls").exists()


def test_an_environment_that_cannot_be_asked_is_refused(host: Host) -> None:
    host.tell("serve")
    (host.folder / "versions").unlink()
    code, said = finish(host.join())
    assert code == 3
    assert f"{host.program} cannot be asked for its packages: cat:" in said


def test_too_few_gpus_are_refused(host: Host) -> None:
    host.tell("serve", gpus=65)
    code, said = finish(host.join())
    assert code == 3
    assert "this host cannot join: infrastructure.ngpus_per_node is 65, and this host has " in said
    assert not (host.folder / "calls").exists()


def test_a_clock_that_differs_is_told_and_hinders_nobody(host: Host) -> None:
    class Dashboard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(401)
            self.send_header("Date", formatdate(time.time() + 3600, usegmt=True))
            self.end_headers()

    with HTTPServer((HEAD, 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            host.tell("serve", dashboard=f"{HEAD}:{server.server_port}")
            process = host.join()
            wait_until(host.joined)
            state = host.state()
            assert state is not None
            assert re.fullmatch(r"its clock is 3\d{3} s behind that of the head's host", state.why)
            process.send_signal(signal.SIGTERM)
            assert f"warning: {state.host}: {state.why}" in finish(process)[1]
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("readable", 3, "other users can read"),
        ("damaged", 3, "cluster.json is damaged"),
        (
            "ended",
            2,
            "run p/r has ended: all steps done. Continue it with `up --resume`, then join, or join with --next",
        ),
        ("here", 2, "is this host: the run's Ray head runs here"),
        ("silent", 3, "gave up after 1 s waiting for the Ray head at"),
        ("starting", 3, ": it is starting\nliverl-tui: gave up after 1 s waiting for the Ray head at"),
        ("nothing", 3, "gave up after 1 s waiting for run p/r to start its Ray head"),
    ],
)
def test_what_cannot_be_joined(host: Host, case: str, code: int, words: str) -> None:
    result = {"state": "done", "exit_code": 0, "cause": None, "steps": 4, "started_at": 1.0, "ended_at": 2.0}
    if case != "nothing":
        host.tell("serve", mode=0o644 if case == "readable" else 0o600)
    if case == "damaged":
        (host.run / "cluster.json").write_text("{}")
    elif case == "ended":
        write_json(host.run / "result.json", result | {"summary": "all steps done"})
    elif case == "silent":
        host.head.close()
    elif case == "starting":  # it listens, and its host has not said yet what others are compared with
        (host.attempt / "nodes" / "first.json").unlink()
    with socket.create_server(("127.0.0.1", 0)) as own:
        if case == "here":
            host.tell("serve", address=f"127.0.0.1:{own.getsockname()[1]}")
        found, said = finish(host.join("--timeout", "1"))
    assert words in said
    assert found == code
    assert not (host.folder / "calls").exists()


def test_a_directory_that_others_could_have_changed_is_refused(host: Host) -> None:
    host.tell("serve")
    host.run.chmod(0o777)
    code, words = finish(host.join(trust=False))
    assert code != 0
    assert str(host.run) in words
    assert "chmod" in words
    assert not (host.folder / "calls").exists()
