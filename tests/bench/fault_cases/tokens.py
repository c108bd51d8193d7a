"""Requests without the run's token to the ports of a replica: each must be refused and change nothing. With the token
they change weights: the run must name that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kit.real import real_run
from kit.vllm_like import ask, run_of, token_of
from kit.waiting import wait_until

from fault_cases.base import Case, Outcome
from fault_cases.toys import stopped
from liverl.rundir.journal import read_object
from liverl.util.token_guard import VARIABLE

TOKEN = "sk-liverl-the-right-one"
_START = 60.0  # seconds for an engine on a busy machine
# What an attacker sends instead of the token.
SENT: Mapping[str, Mapping[str, str]] = {
    "nothing": {},
    "a wrong token": {"Authorization": "Bearer sk-liverl-a-wrong-one"},
    "a prefix of the token": {"Authorization": f"Bearer {TOKEN[:-1]}"},
    "the token and more": {"Authorization": f"Bearer {TOKEN}x"},
    "the token as another scheme": {"Authorization": f"Basic {TOKEN}"},
    "the token in another header": {"X-Api-Key": TOKEN, "Proxy-Authorization": f"Bearer {TOKEN}"},
    "an empty token": {"Authorization": "Bearer "},
    "bytes that are no text": {"Authorization": "Bearer \u00ff\u00fe"},
}
_UPDATE = json.dumps({"version": 0, "logits": {"create|start|ok": {"submit": 50.0}}})
_CHAT = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
ASKED: Mapping[str, tuple[tuple[str, str, str | None], ...]] = {
    "replaces the weights": (("POST", "/update_weights", _UPDATE), ("POST", "//update_weights", _UPDATE)),
    "asks for completions": (
        ("POST", "/v1/chat/completions", _CHAT),
        ("POST", "/v1/chat/completions/", _CHAT),
    ),
    "reads what it may not": tuple(
        (method, path, None)
        for method in ("GET", "HEAD", "OPTIONS", "DELETE")
        for path in ("/metrics", "/health", "/ping", "/version", "/policy_version", "/v1/models", "/", "/no")
    ),
}


def cases() -> Iterable[Case]:
    """Every way to be unauthorised with every thing that a request may want."""
    for sent in SENT:
        for asked in ASKED:
            yield Case(f"a client that sends {sent} {asked}", partial(_attack, sent, asked))
    yield Case("a client with the token replaces the weights of the same version", _other_weights)
    for route in ("update_weights", "collective_rpc", "sleep"):
        name = f"a client with the token calls /{route} of vllm serve (simulated)"
        yield Case(name, partial(_asks_vllm, route))


@contextmanager
def _engine(folder: Path) -> Iterator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "liverl.embedded.engine",
        "--model",
        "builtin:qwen3_coder",
        "--host",
        "127.0.0.1",
    ]
    command += ["--port", str(port), "--served-model-name", "policy", "--enforce-eager"]
    with open(folder / "engine.log", "wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, VARIABLE: TOKEN})
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _START
        while _ask(f"{url}/health", "GET", None, {"Authorization": f"Bearer {TOKEN}"})[0] != 200:
            if time.monotonic() > deadline or engine.poll() is not None:
                raise RuntimeError((folder / "engine.log").read_text()[-500:])
            time.sleep(0.05)
        yield url
    finally:
        engine.kill()
        engine.wait()


def _ask(url: str, method: str, body: str | None, headers: Mapping[str, str]) -> tuple[int, str]:
    request = urllib.request.Request(url, body.encode() if body else None, dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def _attack(sent: str, asked: str, folder: Path) -> Outcome:
    with _engine(folder) as url:
        right = {"Authorization": f"Bearer {TOKEN}"}
        before = _ask(f"{url}/policy_version", "GET", None, right)
        began = time.monotonic()
        for method, path, body in ASKED[asked]:
            status, text = _ask(url + path, method, body, SENT[sent])
            # 400: the HTTP parser refuses a header before the guard sees it.
            if status not in (400, 401) or "\n" in text.strip():
                raise AssertionError(f"{method} {path} answered {status}: {text[:100]}")
        named = time.monotonic() - began
        after = _ask(f"{url}/policy_version", "GET", None, right)
        metrics = _ask(f"{url}/metrics", "GET", None, right)[1]
        if before[0] != 200 or before != after:
            raise AssertionError(f"the policy was {before} and is {after}")
        if any(
            line.startswith("vllm:prompt_tokens_total{") and not line.endswith(" 0.0")
            for line in metrics.split("\n")
        ):
            raise AssertionError("it has generated tokens")
        count = len(ASKED[asked])
        return Outcome(named_s=named / count, note=f"{count} requests refused")


def _other_weights(folder: Path) -> Outcome:
    """In a real run of the embedded engine and trainer, whose version the update states."""
    run = real_run(folder, "training.total_steps=500", "run.replicas=1", "embedded.turn_latency=0.5")
    try:
        run.start()
        (replica,) = wait_until(lambda: [r for r in run.snapshot().replicas.items if r.listed], 60)
        right = {"Authorization": f"Bearer {token_of(run)}"}
        began = 0.0

        def named() -> bool:
            """Replace the weights in a rollout, until that is told: what comes while the trainer sends its own is
            overwritten."""
            nonlocal began
            if f"policy_changed:{replica.name}" in {s.id for s in run.snapshot().symptoms}:
                return True
            trainer = read_object(run.run_dir / "trainer.json") or {}
            if trainer.get("phase") == "rollout":
                began = began or time.monotonic()
                version = json.loads(_ask(f"{replica.address}/policy_version", "GET", None, right)[1])[
                    "version"
                ]
                update = json.dumps({"version": version, "logits": {"create|start|ok": {"submit": 50.0}}})
                assert _ask(f"{replica.address}/update_weights", "POST", update, right)[0] == 200
            return False

        wait_until(named, 45, "the alert")
        return stopped(run, Outcome(named_s=time.monotonic() - began), now=True)
    finally:
        run.end()


def _asks_vllm(route: str, folder: Path) -> Outcome:
    run = run_of(folder, 1)
    try:
        run.start()
        port = run.until("replica-0", "ready", 60).ports["http"]
        began = time.monotonic()
        status = ask(f"http://127.0.0.1:{port}/{route}", "POST", token_of(run))
        if status != 200:
            raise AssertionError(f"/{route} answered {status}")
        alert = "weights_requested:replica-0"
        wait_until(lambda: alert in {s.id for s in run.snapshot().symptoms}, 30, "the alert")
        return stopped(run, Outcome(named_s=time.monotonic() - began), now=True)
    finally:
        run.end()
