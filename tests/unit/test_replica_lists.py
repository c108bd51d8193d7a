"""The lists of replicas in files, over a storage that hangs: who is told when, and who waits."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.newest import Storage, idle, lists_written
from kit.plans import plan_of
from msgspec.structs import replace

from liverl.observe.oom_kills import OomKills
from liverl.procs import tree
from liverl.proxy.config import config_sha
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.proxy_routes import ProxyRoutes
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_source import ReplicaSource
from liverl.serving.route_file import AGAIN

A, B = "http://127.0.0.1:80", "http://127.0.0.1:81"
FULL = OSError(28, "No space left on device")


class Fake:
    """A run with one ready replica and a serving proxy. ``signals``: those that the proxy got."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.clock, self.kicks = run_dir, 1000.0, 0
        self.signals: list[int] = []
        self.failed: list[str] = []
        self.said: list[str] = []
        machine = SimpleNamespace(state="ready", generation=1, why="", since=1.0, leader_gone=False)
        self.replica, proxy = (
            SimpleNamespace(
                name=name,
                state="ready",
                spec=SimpleNamespace(kind=kind, host="127.0.0.1"),
                current=SimpleNamespace(
                    machine=machine,
                    process=SimpleNamespace(
                        pid=5, generation=1, ports={"http": port}, gpus=(), member=(5, 6), started_at=0.0
                    ),
                    port=lambda _: 80,
                ),
                restarts=0,
            )
            for name, kind, port in (("replica-0", "replica", 80), ("proxy", "proxy", 90))
        )
        proxy.instances = lambda: [SimpleNamespace(process=proxy.current.process, machine=machine)]
        supervisor: Any = SimpleNamespace(
            slots={"replica-0": self.replica, "proxy": proxy},
            stopping=False,
            run_dir=run_dir,
            attempt=1,
            now=lambda: self.clock,
            say=lambda kind, text, *_, **__: self.said.append(text) if kind == "routes" else None,
            kick=self._kick,
            records=SimpleNamespace(write_failed=self.failed.append, warn=pytest.fail),
        )
        (run_dir / "secrets").mkdir()
        (run_dir / "secrets/replica_token").write_text("sk-right\n")
        self.registry = ReplicaRegistry(supervisor, plan_of("run.replicas=1", profile="embedded"), 30.0, 1.0)

    def _kick(self) -> None:
        self.kicks += 1

    @property
    def proxy(self) -> ProxyRoutes:
        return self.registry.proxy

    def supervised(self, name: str) -> Any:
        """The process of a service."""
        return self.proxy._supervisor.slots[name].current.process

    def loaded(self, sha: str) -> None:
        """The proxy's report."""
        self.proxy.reports[1] = {"pid": 5, "config_sha": sha}

    def reported(self, sha: str) -> None:
        """The proxy's report, in its file."""
        path = self.run_dir / "proxy/status.1.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"pid": 5, "config_sha": sha}))

    def look(self) -> None:
        """Read the reports."""
        self.clock += AGAIN
        self.proxy.reader()()()

    def file_sha(self) -> str:
        return config_sha((self.run_dir / "proxy/litellm.yaml").read_text())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path)
    monkeypatch.setattr(tree, "send", lambda member, number: made.signals.append(number))
    monkeypatch.setattr(
        made.proxy, "_keep", lambda data: None
    )  # the storage here is asked for the lists only
    return made


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    made = Storage()
    monkeypatch.setattr("liverl.util.newest_file.write_atomic", made.write)
    yield made
    made.end()


async def test_the_proxy_gets_its_signal_when_the_list_has_been_written(fake: Fake, storage: Storage) -> None:
    fake.loaded("old")
    fake.proxy.publish([A], [])
    fake.clock += AGAIN
    fake.proxy.publish([A], [])
    assert (fake.signals, fake.kicks, fake.proxy.unwritten) == ([], 0, True)
    assert not fake.proxy.knows() and fake.proxy.behind, "the list that is wanted decides"
    await storage.answered(fake.proxy._file, None)
    assert (fake.signals, fake.kicks, fake.proxy.unwritten) == ([signal.SIGHUP], 1, False)
    fake.loaded(fake.file_sha())
    assert fake.proxy.knows() and not fake.proxy.behind
    fake.clock += AGAIN
    fake.proxy.publish([A], [])
    fake.proxy.publish([B], [])
    assert len(fake.signals) == 1 and not fake.proxy.knows() and fake.proxy.behind
    await storage.answered(fake.proxy._file, None)
    assert len(fake.signals) == 2 and not fake.proxy.knows(), "it has not reported it"


@pytest.mark.parametrize("started_at", [0.0, 1e9], ids=["before the list", "after it"])
@pytest.mark.parametrize("text", [b"changed", b"\xff", None], ids=["other text", "no text", "removed"])
async def test_a_list_that_somebody_changed_is_written_again(
    fake: Fake, started_at: float, text: bytes | None
) -> None:
    file = fake.run_dir / "proxy/litellm.yaml"
    fake.supervised("proxy").started_at = started_at
    fake.reported("old")
    fake.proxy.publish([A], [])
    await idle(fake.proxy._file)
    sha = fake.file_sha()
    fake.look()
    assert not fake.said, "it has not loaded the list yet, and the file has it"
    fake.reported(sha)
    file.write_bytes(text) if text is not None else file.unlink()
    fake.look()
    assert not fake.said, "what was changed is not loaded"
    fake.reported("changed")
    fake.look()
    fake.look()
    await idle(fake.proxy._file)
    (said,) = fake.said
    assert said.startswith("proxy/litellm.yaml was changed by another program")
    assert fake.file_sha() == sha and fake.signals[-1] == signal.SIGHUP
    fake.look()
    assert len(fake.said) == 1, "it is on its way"


async def test_a_program_that_writes_the_list_again_and_again_is_told_once_a_minute(fake: Fake) -> None:
    """Else each of two programs that fight for the file would fill the events."""
    file = fake.run_dir / "proxy/litellm.yaml"
    fake.proxy.publish([A], [])
    await idle(fake.proxy._file)
    sha, mended = fake.file_sha(), 0
    fake.reported(sha)
    fake.look()
    for _ in range(4 * 90):
        if fake.file_sha() == sha:
            mended += 1
            file.write_bytes(b"changed")
            fake.reported("changed")
        fake.clock -= 3 * AGAIN / 4  # of the second that each look takes here
        fake.look()
        await idle(fake.proxy._file)
    assert mended >= 80, "it is mended, but not at each look"
    assert mended <= 92
    first, second = fake.said
    assert "program, and proxy does not" in first and " times since this was last said" in second


async def test_a_process_that_does_not_load_the_list_is_told_once_a_second(fake: Fake) -> None:
    """A signal more often would keep it from its requests."""
    fake.loaded("old")
    fake.proxy.publish([A], [])
    await idle(fake.proxy._file)
    for number in range(1, 4):
        assert fake.signals == [signal.SIGHUP] * number
        for _ in range(3):  # as often as a replica's state changes
            fake.clock += AGAIN / 4
            fake.proxy.publish([A], [])
        assert fake.signals == [signal.SIGHUP] * number
        fake.clock += AGAIN / 4
        fake.proxy.publish([A], [])
    await idle(fake.proxy._file)


async def test_a_process_that_started_while_the_list_was_written_may_have_read_the_one_before(
    fake: Fake,
) -> None:
    fake.loaded("old")
    fake.supervised("proxy").started_at = fake.clock
    fake.proxy.publish([A], [])
    await idle(fake.proxy._file)
    fake.clock += AGAIN
    fake.proxy.publish([A], [])
    await idle(fake.proxy._file)
    assert fake.signals == [signal.SIGHUP] * 2 and not fake.said, "nobody has changed the file"


async def test_a_list_that_was_overtaken_while_it_was_written_is_loaded_too(
    fake: Fake, storage: Storage
) -> None:
    """Another one may take long: the replica that has gone must not get trials until then."""
    fake.loaded("old")
    fake.proxy.publish([A], [])
    await storage.until_begun(1)
    fake.proxy.publish([A, B], [])
    await storage.answered(fake.proxy._file, None, None)
    assert fake.signals == [signal.SIGHUP] * 2
    fake.loaded(fake.file_sha())
    assert fake.proxy.knows()


async def test_each_list_has_a_version_of_its_own(fake: Fake, storage: Storage) -> None:
    for _ in range(3):
        fake.registry.update()
    assert fake.registry.unwritten("trainer") == "replicas.json to be written"
    assert fake.registry.unwritten("proxy") == "proxy/litellm.yaml to be written"
    assert fake.registry.unwritten("replica") is None
    storage.answers.put(FULL)
    storage.answers.put(FULL)
    await lists_written(fake.registry)
    assert sorted(text.partition(":")[0] for text in fake.failed) == ["litellm.yaml", "replicas.json"]
    assert fake.registry.unwritten("trainer") and fake.registry.unwritten("proxy") and fake.kicks == 0
    storage.end()
    for generation in (1, 1, 2, 2):
        fake.replica.current.machine.generation = generation
        fake.registry.update()
        await lists_written(fake.registry)
    assert not fake.registry.unwritten("trainer") and not fake.registry.unwritten("proxy")
    stored = json.loads((fake.run_dir / "replicas.json").read_bytes())
    assert stored["version"] == 2 and stored["replicas"][0]["generation"] == 2


async def test_verls_trainer_waits_for_no_list(fake: Fake, storage: Storage) -> None:
    fake.registry.update()
    fake.registry.source = cast(ReplicaSource, SimpleNamespace())
    assert fake.registry.unwritten("trainer") is None and fake.registry.unwritten("proxy")


# --- what is said of it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["proxy", "sessions", "workers"])
def test_only_what_keeps_a_list_of_replicas_is_said_to_get_them(tmp_path: Path, carrier: Any) -> None:
    said: list[str] = []

    class Verl:
        state = "ready"

        def endpoints(self) -> list[ReplicaEndpoint]:
            return [ReplicaEndpoint("v0", self.state, "", A, 1, 0, 1.0, (), "verl")]  # type: ignore[arg-type]

        def ended_unasked(self, name: str) -> bool:
            return False

    supervisor: Any = SimpleNamespace(
        slots={}, stopping=False, run_dir=tmp_path, attempt=1, now=lambda: 1.0, kick=lambda: None,
        say=lambda kind, text, *_, **__: said.append(text), oom_kills=OomKills(()),
        records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
    )  # fmt: skip
    plan = replace(plan_of("run.topology=in_process", profile="h200-smoke"), carrier=carrier)
    source = Verl()
    registry = ReplicaRegistry(supervisor, plan, 30.0, 1.0, cast(ReplicaSource, source))
    registry.expected = 1
    registry._publish = lambda endpoints: None  # type: ignore[method-assign]
    registry.update()
    assert registry.listed == {"v0"}, "it gets new trials"
    source.state = "failed"
    registry.update()
    assert registry.listed == set()
    name = {"proxy": "the proxy", "sessions": "the sessions"}.get(carrier)
    assert said == (
        ["1 of 1 replica is up; new trials can start"]
        if name is None
        else [
            f"1 of 1 replica is up; adding them to {name}",
            f"added to {name}; new trials can use this replica",
            f"removed from {name}; new trials do not use this replica",
        ]
    )
    source.state = "ready"
    registry.update()
    said.clear()
    source.state = "stopped"
    registry.update()
    assert not said and not registry.listed, "its trainer has ended, which is said"
