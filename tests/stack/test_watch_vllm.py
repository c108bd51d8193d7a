"""``watch`` on real vLLM servers and a real LiteLLM that somebody started by hand: their start, their load, and an
EngineCore that is killed.

LIVERL_TEST_VLLM_PYTHON names a Python with vLLM 0.24 or later, of a build for CPUs too; LIVERL_TEST_VERL_SMOKE a folder
with the smoke model. The servers start within five minutes: ``pytest -m slow -n0 tests/stack/test_watch_vllm.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.beside import watched
from kit.components import LITELLM
from kit.ports import free_ports
from kit.verl_runs import SMOKE
from kit.waiting import wait_until

from liverl.environments import default_cache_dir, ensure
from liverl.model import Snapshot
from liverl.watch.http import Refused, get
from liverl.watch.target import Target, checked
from liverl.watch.watcher import Watcher

PYTHON = os.environ.get("LIVERL_TEST_VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VLLM_PYTHON names no Python with vLLM"),
    pytest.mark.skipif(not SMOKE, reason="LIVERL_TEST_VERL_SMOKE names no folder with the smoke model"),
]
LOADED = 900.0  # seconds until servers answer: a build for CPUs compiles first
NAMED_S = 30.0  # seconds from a kill until the alert
ENDED = "EngineCore process ended without an error of its own"


class ByHand:
    """Two servers, and a proxy in front of them, with their logs in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, f"sk-{secrets.token_hex(16)}"
        *self.ports, self.proxy = free_ports(3)
        litellm = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: None)).with_name(
            "litellm"
        )
        self._env = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("LIVERL_", "PYTHON"))},
            "LITELLM_MASTER_KEY": self.key,
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        models = [
            {
                "model_name": "policy",
                "litellm_params": {
                    "model": "hosted_vllm/policy",
                    "api_base": f"http://127.0.0.1:{port}/v1",
                    "api_key": "none",
                },
            }
            for port in self.ports
        ]
        (folder / "litellm.yaml").write_text(json.dumps({"model_list": models}))
        self.servers = [self._serve(number) for number in range(2)]
        self._proxy = self._start(
            "proxy.log",
            str(litellm),
            "--config",
            "litellm.yaml",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.proxy),
        )

    def _serve(self, number: int) -> subprocess.Popen[bytes]:
        return self._start(
            f"serve{number}.log",
            *(
                str(Path(PYTHON).with_name("vllm")),
                "serve",
                f"{SMOKE}/model",
                "--served-model-name",
                "policy",
            ),
            *("--host", "127.0.0.1", "--port", str(self.ports[number]), "--max-model-len", "2048"),
            *("--enforce-eager", "--max-num-seqs", "16", "--gpu-memory-utilization", "0.1"),
        )

    def _start(self, log: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                words, stdout=out, stderr=out, cwd=self.folder, env=self._env, start_new_session=True
            )

    def ask(self) -> int:
        """Ask the proxy once; return the status."""
        body = {"model": "policy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.proxy}/v1/chat/completions",
            json.dumps(body).encode(),
            {"authorization": f"Bearer {self.key}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def answers(self, port: int, path: str = "/health") -> bool:
        assert all(one.poll() is None for one in (*self.servers, self._proxy)), "one has exited"
        try:
            return get(f"http://127.0.0.1:{port}{path}", 5.0)[0] == 200
        except Refused:
            time.sleep(0.5)
            return False

    def engine(self, number: int) -> int:
        """The pid of the engine of a server."""
        below = psutil.Process(self.servers[number].pid).children(recursive=True)
        (found,) = (one.pid for one in below if "".join(one.cmdline()).startswith("VLLM::EngineCore"))
        return found

    def end(self) -> None:
        for leader in (*self.servers, self._proxy):
            try:
                tree = [leader.pid, *(one.pid for one in psutil.Process(leader.pid).children(recursive=True))]
            except psutil.NoSuchProcess:
                tree = []
            for pid in tree:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            leader.wait(60)


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[ByHand]:
    folder = tmp_path / "hand"
    folder.mkdir()
    hand = ByHand(folder)
    yield hand
    hand.end()


def alerts(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["severity"], one["title"]) for one in document["symptoms"]]


def test_servers_by_hand_from_their_start_to_the_end_of_one(hand: ByHand, tmp_path: Path) -> None:
    """What `watch` says at once, and what one that goes on says, is the same."""
    wait_until(lambda: hand.answers(hand.proxy, "/health/liveliness"), LOADED, "the proxy")
    statuses = [hand.ask() for _ in range(3)]
    assert set(statuses) == {500}, "no server answers yet"
    seen = watched(hand.folder)
    assert [one["state"] for one in seen["replicas"]["items"]] == ["starting", "starting"]
    assert not [one for one in alerts(seen) if one[0] == "critical"], "they start"
    for port in hand.ports:
        wait_until(lambda port=port: hand.answers(port), LOADED, f"port {port}")  # type: ignore[misc]
    wait_until(lambda: all(hand.ask() == 200 for _ in range(4)), 300, "answers of both")

    (tmp_path / "private").mkdir()
    watcher = Watcher(checked(Target(hand.folder)), tmp_path / "private")
    watcher.start()
    try:

        def replicas(snapshot: Snapshot) -> list[tuple[str | None, str, bool, int | None]]:
            return [(one.address, one.state, one.listed, one.pid) for one in snapshot.replicas.items]

        both = [
            (f"http://127.0.0.1:{port}", "ready", True, server.pid)
            for port, server in zip(hand.ports, hand.servers, strict=True)
        ]
        wait_until(lambda: sorted(replicas(watcher.poll())) == sorted(both), what="two replicas")
        asked = wait_until(
            lambda: (s := watcher.poll()).replicas.items[0].engine.generation_tokens_total and s
        )
        assert asked is not None
        once = watched(hand.folder)
        assert sorted(one["address"] for one in once["replicas"]["items"]) == sorted(
            one[0] for one in both if one[0]
        )
        assert not [one for one in alerts(once) if one[0] == "critical"], "all of it is over"

        at = time.monotonic()
        os.kill(hand.engine(0), signal.SIGKILL)
        ids: list[frozenset[str]] = []

        def titles() -> list[str]:
            snapshot = watcher.poll()
            ids.append(frozenset(one.id for one in snapshot.symptoms if one.severity == "critical"))
            return [one.title for one in snapshot.symptoms]

        wait_until(lambda: any(ENDED in title for title in titles()), NAMED_S, "the engine's end")
        print(f"the engine's end: {time.monotonic() - at:.1f} s after the kill")
        hand.servers[0].wait(120)
        wait_until(
            lambda: titles() and sorted(one[1] for one in replicas(watcher.poll())) == ["failed", "ready"],
            NAMED_S,
            "one replica of two",
        )
        for _ in range(5):  # over some looks at the processes
            then = watcher.poll().at
            wait_until(lambda then=then: watcher.poll().at > then + 1.0)  # type: ignore[misc]
            titles()
        assert len(watcher.poll().replicas.items) == 2, "no server is told twice"
        assert all(earlier <= later for earlier, later in pairwise(ids)), list(dict.fromkeys(ids))
        assert not [
            one.title for one in watcher.poll().symptoms if "verl" in one.title + one.fix.split(";")[0]
        ]
    finally:
        watcher.close()
    after = watched(hand.folder)
    assert ("critical", f"cause unknown: vLLM's {ENDED}") in alerts(after)
    assert after["replicas"]["ready"] == 1
