"""Which ends of a replica's process the sessions are told: those that nobody and nothing known has caused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.newest import idle
from kit.plans import plan_of

from liverl.model import Exit
from liverl.observe.engine.activity import ActivityState
from liverl.plan.spec import RestartPolicy, StopStage
from liverl.serving import registry as registry_module
from liverl.serving.endpoint import ReplicaEndpoint
from liverl.serving.registry import ReplicaRegistry
from liverl.sessions.replica_file import Replica, deaths_in, read_replicas, replica_file
from liverl.supervise.services import state_machine as machine
from liverl.supervise.services.slot import Slot
from liverl.verl.discovery.assess import Rank
from liverl.verl.replicas import VerlReplicas

RULES = machine.RestartRules(RestartPolicy(mode="always"), (StopStage("TERM", "tree", 5.0),))
KILLED = Exit(signal=9)
PORT = 4000


class Replicas:
    """A supervisor with one replica of ours, whose state machine is real, and a registry of it."""

    def __init__(self, run_dir: Path) -> None:
        self.oom, self.clock = "", 100.0
        (run_dir / "sessions").mkdir(exist_ok=True)
        (run_dir / "secrets").mkdir(exist_ok=True)
        (run_dir / "secrets/replica_token").write_text("sk-right\n")
        self.run_dir = run_dir
        current: Any = SimpleNamespace(machine=machine.MachineState(), process=None, spec=None)
        spec: Any = SimpleNamespace(name="replica-0", kind="replica", host="127.0.0.1")
        self.slot = Slot(spec, current)
        others = {
            name: SimpleNamespace(
                state="ready",
                spec=SimpleNamespace(kind=name, host="127.0.0.1"),
                current=SimpleNamespace(machine=SimpleNamespace(generation=1)),
                instances=list,
            )
            for name in ("sessions", "trainer")
        }
        self.tasks: list[asyncio.Task[None]] = []
        self.supervisor: Any = SimpleNamespace(
            slots={"replica-0": self.slot, **others}, run_dir=run_dir, attempt=1, stopping=False,
            now=lambda: self.clock, kick=lambda: None, say=lambda *a, **k: None,
            oom_kills=SimpleNamespace(evidence=lambda now: self.oom), spawn_task=self._spawn,
            records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
        )  # fmt: skip
        plan = plan_of("run.replicas=1", "proxy.trials_through=sessions", profile="embedded")
        self.registry = ReplicaRegistry(self.supervisor, plan, 30.0, 1.0)
        self.trainer_reports(phase="rollout")

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(work))
        return self.tasks[-1]

    def trainer_reports(self, **facts: Any) -> None:
        (self.run_dir / "trainer.json").write_text(json.dumps(facts))

    def feed(self, *events: machine.Input) -> None:
        """What the supervisor does: a step of the state machine, then a look at all services."""
        for event in events:
            current = self.slot.current
            current.machine, actions = machine.step(current.machine, event, self.clock, RULES)
            for action in actions:
                if isinstance(action, machine.Prepare):  # each process gets a port of its own
                    number = action.generation
                    process: Any = SimpleNamespace(ports={"http": PORT + number}, gpus=(), generation=number)
                    current.process = process
            self.registry.update()

    def start(self) -> int:
        """Start a process until it is ready; its generation."""
        self.feed(machine.DependenciesMet())
        generation = self.slot.current.machine.generation
        self.feed(machine.Prepared(generation), machine.Spawned(generation), machine.ProbeReady(generation))
        return generation

    def again(self) -> None:
        """The processes of the service are gone; the next one starts until it is ready."""
        generation = self.slot.current.machine.generation
        self.feed(machine.TreeEmpty(generation))
        self.clock += 1000.0
        self.feed(machine.DeadlinePassed())  # after a second failure it waits
        generation = self.slot.current.machine.generation
        self.feed(machine.Prepared(generation), machine.Spawned(generation), machine.ProbeReady(generation))

    async def told(self) -> dict[str, int]:
        """The deaths in the file of the sessions."""
        await asyncio.gather(*self.tasks)
        await idle(self.registry.sessions._file)
        return deaths_in(read_replicas((self.run_dir / "sessions/replicas.json").read_bytes()))


@pytest.fixture
async def replicas(tmp_path: Path) -> Replicas:
    return Replicas(tmp_path)


def url(generation: int) -> str:
    return f"http://127.0.0.1:{PORT + generation}"


EXITS = {
    "SIGKILL": (Exit(signal=9), 1),
    "SIGSEGV": (Exit(signal=11), 1),
    "SIGABRT": (Exit(signal=6), 1),
    "exit 1": (Exit(code=1), 1),
    "exit 0": (Exit(code=0), 1),  # as vLLM's server after its engine died
    "exit 137": (Exit(code=137), 1),
    "SIGTERM": (Exit(signal=15), 0),
    "SIGINT": (Exit(signal=2), 0),
    "SIGHUP": (Exit(signal=1), 0),
    "exit 143": (Exit(code=143), 0),
    "exit 130": (Exit(code=130), 0),
    "unknown": (Exit(), 0),
}


@pytest.mark.parametrize("how", EXITS)
async def test_how_a_process_ended(replicas: Replicas, how: str) -> None:
    ended, deaths = EXITS[how]
    replicas.start()
    replicas.feed(machine.LeaderExited(1, ended))
    assert (await replicas.told()).get(url(1), 0) == deaths
    replicas.again()
    assert (await replicas.told()).get(url(1), 0) == deaths, "it is counted once"


def _oom(replicas: Replicas) -> None:
    replicas.oom = "oom_kill has risen"


def _run_stops(replicas: Replicas) -> None:
    replicas.supervisor.stopping = True


def _sync(replicas: Replicas) -> None:
    replicas.trainer_reports(phase="sync")


def _sync_when_seen_last(replicas: Replicas) -> None:
    replicas.registry.trainer = {"phase": "sync"}


def _no_trainer(replicas: Replicas) -> None:
    """The report is that of a trainer that has ended."""
    _sync(replicas)
    replicas.supervisor.slots["trainer"].state = "stopped"


def _torn_report(replicas: Replicas) -> None:
    (replicas.run_dir / "trainer.json").write_text("{")


def _no_report(replicas: Replicas) -> None:
    (replicas.run_dir / "trainer.json").unlink()


def _feed(*events: machine.Input) -> Any:
    return lambda replicas: replicas.feed(*events)


CAUSES = {
    "none": (lambda _: None, 1),
    "stopped": (_feed(machine.Stop()), 0),
    "restarted": (_feed(machine.Restart()), 0),
    "no answer": (_feed(machine.LivenessFailed(1, "no answer")), 0),
    "stop of the run has begun": (_feed(machine.NoRestart()), 0),
    "run stops": (_run_stops, 0),
    "memory of the host": (_oom, 0),
    "weights": (_sync, 0),
    "weights, when last seen": (_sync_when_seen_last, 0),
    "trainer over": (_no_trainer, 1),
    "torn report": (_torn_report, 1),
    "no report": (_no_report, 1),
}


@pytest.mark.parametrize("cause", CAUSES)
async def test_what_else_may_have_ended_it(replicas: Replicas, cause: str) -> None:
    before, deaths = CAUSES[cause]
    replicas.start()
    before(replicas)
    replicas.feed(machine.LeaderExited(1, KILLED))
    assert (await replicas.told()).get(url(1), 0) == deaths


async def test_a_process_that_never_served_is_not_counted(replicas: Replicas) -> None:
    replicas.feed(
        machine.DependenciesMet(), machine.Prepared(1), machine.Spawned(1), machine.LeaderExited(1, KILLED)
    )
    replicas.again()
    assert await replicas.told() == {}


async def test_an_end_that_was_not_seen_is_not_taken_for_one_of_the_next_process(replicas: Replicas) -> None:
    replicas.start()
    current = replicas.slot.current
    current.machine, _ = machine.step(current.machine, machine.LeaderExited(1, KILLED), 0.0, RULES)
    current.machine, _ = machine.step(current.machine, machine.TreeEmpty(1), 0.0, RULES)
    replicas.feed(machine.Prepared(2))
    assert await replicas.told() == {}


async def test_a_storage_that_hangs_does_not_keep_an_end_from_being_told(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "REPORT_NOW_LIMIT", 0.0)
    replicas.start()
    replicas.feed(machine.LeaderExited(1, KILLED))
    assert await replicas.told() == {url(1): 1}


async def test_the_file_tells_of_urls_that_are_listed_and_of_others(replicas: Replicas) -> None:
    replicas.start()
    replicas.feed(machine.LeaderExited(1, KILLED))
    await replicas.told()
    replicas.again()
    replicas.registry.listed.add("replica-0")
    replicas.registry._generations["replica-0"] = 2
    replicas.registry.update()
    await replicas.told()
    file = replicas.run_dir / "sessions/replicas.json"
    assert read_replicas(file.read_bytes()) == [
        Replica(url(2), "policy"),
        Replica(url(1), "policy", draining=True, deaths=1, gone=True),
    ]
    replicas.slot.current.process.ports["http"] = PORT + 1  # the next process got the first one's port
    replicas.feed(machine.LeaderExited(2, KILLED))
    assert await replicas.told() == {url(1): 1, url(2): 1}
    replicas.again()
    replicas.slot.current.process.ports["http"] = PORT + 1
    replicas.registry.update()
    replicas.feed(machine.LeaderExited(3, KILLED))
    assert await replicas.told() == {url(1): 2, url(2): 1}


async def test_the_next_backend_goes_on_counting(replicas: Replicas, tmp_path: Path) -> None:
    replicas.start()
    replicas.feed(machine.LeaderExited(1, KILLED))
    await replicas.told()
    replicas.again()
    await replicas.told()
    await idle(replicas.registry._list_file)
    after = Replicas(tmp_path)
    after.slot.current = replicas.slot.current
    after.supervisor.slots["replica-0"] = after.slot
    stored = json.loads((tmp_path / "replicas.json").read_bytes())
    stored["replicas"] = [{"name": "replica-0", "url": url(2), "state": "listed", "generation": 2}]
    (tmp_path / "replicas.json").write_text(json.dumps(stored))
    after.registry.restore_listing()
    after.feed(machine.LeaderExited(2, KILLED))  # before the first look at it
    assert await after.told() == {url(1): 1, url(2): 1}
    (tmp_path / "replicas.json").write_text(
        json.dumps(stored)
    )  # as if the list had not been written any more
    last = Replicas(tmp_path)
    last.slot.current = after.slot.current
    last.registry.restore_listing()
    last.feed()
    last.registry.update()
    assert await last.told() == {url(1): 1, url(2): 1}, "judged by the backend before"


async def test_old_urls_are_forgotten(replicas: Replicas) -> None:
    for _ in range(300):
        replicas.registry.deaths.counts[f"http://h:{len(replicas.registry.deaths.counts)}"] = 1
    replicas.start()
    replicas.feed(machine.LeaderExited(1, KILLED))
    told = await replicas.told()
    assert len(told) == 256 and told[url(1)] == 1 and "http://h:0" not in told


@pytest.mark.parametrize("broken", [b"", b"[{", b"{}", b'[{"url": 1}]'])
async def test_a_file_that_cannot_be_read_tells_nothing(replicas: Replicas, broken: bytes) -> None:
    (replicas.run_dir / "sessions/replicas.json").write_bytes(broken)
    assert replicas.registry.sessions.deaths_told() == {}


# --- the file ---------------------------------------------------------------------------------------------------------


def test_a_file_of_an_earlier_version_tells_no_deaths() -> None:
    old = b'[{"url":"http://a","model":"m"},{"url":"http://b","model":"m","draining":true}]'
    assert read_replicas(old) == [Replica("http://a", "m"), Replica("http://b", "m", draining=True)]
    assert replica_file(["http://a"], ["http://b"], "m") == old


URLS = st.lists(st.sampled_from([f"http://h:{n}" for n in range(6)]), unique=True, max_size=6)


DEATHS = st.dictionaries(st.sampled_from([f"http://h:{n}" for n in range(9)]), st.integers(0, 3))


@given(urls=URLS, split=st.integers(0, 6), deaths=DEATHS)
def test_the_file_is_read_as_it_was_written(urls: list[str], split: int, deaths: dict[str, int]) -> None:
    replicas = read_replicas(replica_file(urls[:split], urls[split:], "m", deaths))
    assert deaths_in(replicas) == {one: number for one, number in deaths.items() if number}
    assert [each.url for each in replicas if not each.gone] == urls
    assert [each.url for each in replicas if not each.draining] == urls[:split]
    assert all(each.draining for each in replicas if each.gone), "no new sessions by an older reader either"


# --- verl's -----------------------------------------------------------------------------------------------------------

UNEXPECTED = (
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file."
)
WORDS = {
    UNEXPECTED: True,
    "The actor died unexpectedly before finishing this task. Worker exit type: SYSTEM_ERROR": True,
    "ALIVE without an engine: its engine has ended": True,
    "The actor is dead because it was killed by `ray.kill`.": False,
    "Worker exit type: INTENDED_SYSTEM_EXIT Worker exit detail: Worker exits by ray.kill": False,
    "The actor is dead because its node has died. Worker exit type: SYSTEM_ERROR": False,
    "Worker exit type: NODE_OUT_OF_MEMORY Worker unexpectedly exits": False,
    "Task was killed due to the node running low on memory.": False,
    "The actor is dead because its owner has died. Worker exit type: SYSTEM_ERROR": False,
    "The actor died because of an error raised in its creation task": False,
    "Ray reports no cause": False,
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("trainer", ["ready", "stopping", "stopped"])
def test_what_ray_says_of_the_end_of_verls_replicas(words: str, trainer: str) -> None:
    why = words if words.startswith("ALIVE") else f"DEAD: {words}"
    source = VerlReplicas.__new__(VerlReplicas)
    made: Any = source
    process = SimpleNamespace(generation=1)
    made._trainer, made._ray = 1, SimpleNamespace(earlier=False)
    slot = SimpleNamespace(state=trainer, current=SimpleNamespace(process=process))
    made._supervisor = SimpleNamespace(slots={"trainer": slot})
    made._discovery = SimpleNamespace(ranks=(Rank(0, "vllm_server_0_0", "dead", why, 1.0),))
    assert source.ended_unasked("vllm_server_0_0") is (WORDS[words] and trainer == "ready")
    assert not source.ended_unasked("vllm_server_1_0")
    made._discovery = SimpleNamespace(ranks=(Rank(0, "vllm_server_0_0", "lost", why, 1.0),))
    assert not source.ended_unasked("vllm_server_0_0")


async def test_the_end_of_each_replica_is_seen_whatever_the_others_do(tmp_path: Path) -> None:
    states: dict[str, Any] = {"v0": "ready", "v1": "ready", "v2": "ready"}

    class Source:
        def endpoints(self) -> list[ReplicaEndpoint]:
            return [
                ReplicaEndpoint(name, state, "", f"http://h:{name}", 1, 0, 1.0, (), "verl")
                for name, state in states.items()
            ]

        def ended_unasked(self, name: str) -> bool:
            return True

    replicas = Replicas(tmp_path)
    del replicas.supervisor.slots["replica-0"]
    replicas.registry = ReplicaRegistry(
        replicas.supervisor, replicas.registry.plan, 30.0, 1.0, cast(Any, Source())
    )
    replicas.registry.complete = True
    replicas.registry.update()
    for number, name in enumerate(("v1", "v2", "v0"), start=1):
        states[name] = "failed"
        replicas.registry.update()
        told = await replicas.told()
        assert told[f"http://h:{name}"] == 1 and len(told) == number


DOING = {"serving": 1, "idle": 1, "asleep": 0, "updating": 0, "waking": 0}


@pytest.mark.parametrize("doing", DOING)
async def test_the_end_of_one_of_verls_replicas_is_counted_unless_its_weights_were_updated(
    tmp_path: Path, doing: Any
) -> None:
    state = {"now": "ready", "unasked": True}

    class Source:
        def endpoints(self) -> list[ReplicaEndpoint]:
            return [ReplicaEndpoint("v0", state["now"], "", "http://h:1", 1, 0, 1.0, (), "verl")]  # type: ignore[arg-type]

        def ended_unasked(self, name: str) -> bool:
            return bool(state["unasked"])

    replicas = Replicas(tmp_path)
    del replicas.supervisor.slots["replica-0"]
    registry = replicas.registry = ReplicaRegistry(
        replicas.supervisor, replicas.registry.plan, 30.0, 1.0, cast(Any, Source())
    )
    registry.complete = True
    registry.update()
    registry.doing = {"v0": ActivityState(doing, 0.0, "")}
    registry.trainer = {"phase": "sync"}  # as in a validation, which has no trials of a step
    state["now"] = "failed"
    registry.update()
    assert await replicas.told() == ({"http://h:1": 1} if DOING[doing] else {})
