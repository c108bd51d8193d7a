"""What scaling decides, part by part: where new trials go, which replicas have weights, who still lives there."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.screens import gpu as board_gpu

from liverl.control.messages import CommandError
from liverl.daemon.run_supervisor import RunSupervisor
from liverl.model import GpuStatus
from liverl.plan.spec import Plan, PortSpec, ServiceSpec, Settings
from liverl.preflight.host import replicas, trials
from liverl.proxy.runtime.assignments import Assignments
from liverl.proxy.runtime.routing import Routing
from liverl.serving.registry import ReplicaRegistry
from liverl.serving.replica_bounds import Machine, too_many
from liverl.serving.scaling import Scaling
from liverl.serving.unfinished_trials import trials_of, unfinished
from liverl.supervise.recovery.replay import read_history
from liverl.supervise.services import state_machine
from liverl.supervise.services.state_machine import MachineState

A, B, C = "http://a", "http://b", "http://c"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def route(folder: Path, clock: Clock, generation: int = 1) -> Routing:
    return Routing(Assignments(folder / "a.jsonl", generation, clock), 30.0, lambda: None, clock)


def place(routing: Routing, clock: Clock, names: str, count: int, among: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(count):
        clock.now += 1.0
        found[routing.choose(f"{names}{number}", among)[0]] += 1
    return found


@pytest.mark.parametrize("swapped", [False, True])
def test_a_replica_that_joins_gets_a_fair_share_and_not_every_new_trial(
    tmp_path: Path, swapped: bool
) -> None:
    clock = Clock()
    routing = route(tmp_path, clock)
    assert place(routing, clock, "old", 100, [A, B]) == {A: 50, B: 50}
    if swapped:
        routing = route(tmp_path, clock, generation=2)
    assert place(routing, clock, "new", 30, [A, B, C]) == {A: 10, B: 10, C: 10}
    assert place(routing, clock, "less", 30, [A, C]) == {A: 15, C: 15}
    assert place(routing, clock, "back", 30, [A, B, C]) == {A: 10, B: 10, C: 10}


def test_a_trial_that_goes_on_still_counts_after_a_replica_joined(tmp_path: Path) -> None:
    clock = Clock()
    routing = route(tmp_path, clock)
    place(routing, clock, "t", 4, [A, B])
    assert routing.choose("first", [A, B, C])[0] == A
    for name in ("t1", "t3"):
        assert routing.choose(name, [A, B, C])[0] == B
    assert place(routing, clock, "n", 3, [A, B, C]) == {A: 1, C: 2}, "B has two that go on"


async def test_what_is_known_of_a_dead_replica_lists_no_other(tmp_path: Path) -> None:
    """It had the trainer's weights and died before it was listed: its next process starts without."""
    machine = SimpleNamespace(generation=1, why="", since=0.0)
    current = SimpleNamespace(machine=machine, process=None)
    spec = SimpleNamespace(kind="replica", host="127.0.0.1")
    replica = SimpleNamespace(name="replica-0", state="stopping", spec=spec, current=current, restarts=0)
    trainer = SimpleNamespace(name="trainer", state="ready", spec=SimpleNamespace(kind="trainer"))
    supervisor: Any = SimpleNamespace(
        slots={"replica-0": replica, "trainer": trainer},
        stopping=False,
        run_dir=tmp_path,
        attempt=1,
        say=lambda *a, **k: 0,
        kick=lambda: None,
        records=SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail),
    )
    plan = Plan("p/n", str(tmp_path), "managed", (), (), None, 1)
    replicas = ReplicaRegistry(supervisor, plan, 30.0, 1.0)
    replicas.trainer = {"policy_version": 4}
    replicas.engines.scraped("replica-0", 0.0, "liverl:policy_version 4")
    replicas.update()
    replica.state, machine.generation = "ready", 2
    replicas.update()
    assert replicas.listed == set()
    replicas.engines.scraped("replica-0", 0.0, "liverl:policy_version 4")
    replicas.update()
    assert replicas.listed == {"replica-0"}


def test_who_lives_on_a_replica(tmp_path: Path) -> None:
    assert trials_of(tmp_path, A) == set() and unfinished(tmp_path, {"t"}) == set()
    (tmp_path / "proxy").mkdir()
    lines = [
        {"trial": t, "replica": r, "at": 1.0} for t, r in (("x", A), ("y", A), ("z", B), ("y", B), ("w", A))
    ]
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"trial": "to\n'
    (tmp_path / "proxy" / "assignments.jsonl").write_text(text)
    assert trials_of(tmp_path, A) == {"x", "w"} and trials_of(tmp_path, B) == {"y", "z"}
    for trial in ("step_0001/x", "step_0002/w", "step_0002/v", "_unattributed"):
        (tmp_path / "trials" / trial).mkdir(parents=True)
    (tmp_path / "trials" / "step_0002" / "v" / "result.json").write_text("{}")
    assert unfinished(tmp_path, {"x", "w", "v", "nowhere"}) == {"w"}


@given(st.binary(max_size=200))
def test_any_assignments_file_can_be_read(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "proxy"
        folder.mkdir()
        (folder / "assignments.jsonl").write_bytes(data)
        assert trials_of(Path(name), A) == set()


def state(generation: int, role: str, machine: MachineState) -> dict[str, Any]:
    import msgspec

    told = msgspec.to_builtins(machine)
    return {"k": "state", "svc": "proxy", "gen": generation, "role": role, "unit": told}


def test_a_promotion_is_one_record() -> None:
    """Whatever part of the journal a killed backend left, exactly one generation is the current one."""
    old, new = MachineState("ready", 1), MachineState("ready", 2)
    records = [
        {"k": "attempt", "n": 1, "era": "b", "at": 1.0},
        state(1, "current", old),
        {"k": "intent", "svc": "proxy", "gen": 2, "role": "incoming"},
        state(2, "incoming", new),
        {"k": "promoted", "svc": "proxy", "records": [state(2, "current", new), state(1, "retiring", old)]},
    ]
    for kept in range(2, len(records) + 1):
        history = read_history(records[:kept])
        current = history.current("proxy")
        found = [current, history.incoming("proxy"), *history.retiring("proxy")]
        assert sorted(p.generation for p in found if p) == ([1] if kept == 2 else [1, 2])
        assert current is not None and current.generation == (2 if kept == len(records) else 1)


def test_a_trial_counts_as_load_from_the_moment_that_a_replica_joins(tmp_path: Path) -> None:
    clock = Clock()
    for tail in (0.0004, 0.0005, 0.0006, 0.4999):  # times that a rounded record would put before the joining
        clock.now += 1000 + tail
        folder = tmp_path / str(clock.now)
        folder.mkdir()
        assert place(route(folder, clock), clock, "t", 2, [A, B]) == {A: 1, B: 1}


def scaling(tmp_path: Path, count: int) -> tuple[Scaling, list[Any]]:
    """Replicas that end as soon as they leave; and what was journalled."""
    journal: list[Any] = []

    async def write(record: Any) -> None:
        journal.append(record)

    async def until(condition: Any) -> None:
        for index in list(made._leaving):
            supervisor.slots.pop(made.name_of(index), None)
        assert condition()

    template = ServiceSpec("r{index}", "replica", argv=("serve",), ports=(PortSpec("http"),))
    plan = Plan("p/n", str(tmp_path), "managed", (), (), template, count)
    supervisor: Any = SimpleNamespace(
        slots={f"r{i}": SimpleNamespace(name=f"r{i}") for i in range(count)},
        stopping=False,
        now=Clock(),
        records=SimpleNamespace(journal=write),
        say=lambda *a, **k: 0,
        until=until,
    )
    replicas: Any = SimpleNamespace(expected=count, leaving=set(), listed=set(), update=lambda: None)
    made = Scaling(supervisor, plan, replicas, no_look, host=lambda: HOST)
    return made, journal


HOST = Machine(cpus=2.0, limited_by="", free=8 << 30, total=16 << 30)


async def no_look() -> None:
    raise AssertionError("no GPU is asked for")


async def test_any_one_replica_can_be_removed_by_name(tmp_path: Path) -> None:
    made, journal = scaling(tmp_path, 3)
    assert await made.scale(remove="r1") == {"replicas": 2, "added": [], "removed": ["r1"]}
    assert made.indices == [0, 2] and made.replicas.expected == 2
    assert journal == [{"k": "replicas", "indices": [0, 2], "leaving": [1]}]
    assert await made.scale(delta=-1) == {"replicas": 1, "added": [], "removed": ["r2"]}


async def test_a_removal_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    made, journal = scaling(tmp_path, 2)
    with pytest.raises(CommandError, match="replicas: r0, r1") as caught:
        await made.scale(remove="r9")
    assert caught.value.code == "unknown_service" and caught.value.did_you_mean == "r1"
    with pytest.raises(CommandError, match="one of"):
        await made.scale(delta=1, remove="r0")
    await made.scale(remove="r0")
    with pytest.raises(CommandError, match="0 replicas"):
        await made.scale(remove="r1")
    assert made.indices == [1] and len(journal) == 1


def gpu(index: int, owner: str = "free") -> GpuStatus:
    return board_gpu(index, owner=owner)


class Board:
    """Scaling of replicas with one GPU each, over a real supervisor that starts nothing. SIMULATED: NVML's samples."""

    def __init__(self, folder: Path, gpus: int, each: int = 1) -> None:
        template = ServiceSpec("r{index}", "replica", argv=("serve",), ports=(PortSpec("http"),), gpus=each)
        plan = Plan("p/n", str(folder), "managed", (), (), template, 1)
        self.supervisor = RunSupervisor(plan, folder, 1, 60.0)
        self.supervisor.gpus = tuple(gpu(index) for index in range(gpus))
        self.supervisor.allowed_gpus = tuple(g.uuid for g in self.supervisor.gpus)
        self.looks = 0
        self.fresh: tuple[GpuStatus, ...] | None = None  # what the next look shows, if it is something else
        replicas = ReplicaRegistry(self.supervisor, plan, 30.0, 1.0)
        self.scaling = Scaling(self.supervisor, plan, replicas, self.look)
        self.scaling.ensure_slot(0)
        self.supervisor.reserve_gpus("r0", each)

    async def look(self) -> None:
        self.looks += 1
        await asyncio.sleep(0)
        self.supervisor.gpus = self.fresh or self.supervisor.gpus

    async def add(self, **wish: int) -> list[str]:
        """The names that a scale has begun to add."""
        before = set(self.supervisor.slots)
        adding = asyncio.ensure_future(self.scaling.scale(**wish))
        await self.supervisor.until(lambda: adding.done() or before != set(self.supervisor.slots))
        if adding.done():
            adding.result()
        self.waiting = adding
        return sorted(set(self.supervisor.slots) - before)


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Callable[..., Board]]:
    made: list[Board] = []

    def make(gpus: int, each: int = 1) -> Board:
        made.append(Board(tmp_path, gpus, each))
        return made[-1]

    yield make
    for one in made:
        one.supervisor.close()


async def test_a_replica_for_which_no_gpu_is_free_is_refused_before_anything_is_started(
    board: Callable[..., Board],
) -> None:
    made = board(2)
    stranger = "foreign pid 77 (bob)"
    made.supervisor.gpus = (gpu(0), gpu(1, stranger))
    with pytest.raises(CommandError) as caught:
        await made.add(delta=1)
    assert caught.value.code == "no_gpus"
    assert (
        str(caught.value) == f"replicas not added: r1 needs 1 GPU, 0 of 2 free; GPU 0: r0, GPU 1: {stranger}"
    )
    assert made.looks == 1, "the last sample may have been old"
    assert (set(made.supervisor.slots), made.scaling.indices) == ({"r0"}, [0])
    assert not (made.supervisor.run_dir / "journal.jsonl").read_bytes()
    made.fresh = (gpu(0), gpu(1))
    assert await made.add(to=2) == ["r1"], "the next sample shows that it is free"


async def test_all_of_the_replicas_that_are_added_need_their_gpus(board: Callable[..., Board]) -> None:
    made = board(4, each=2)
    with pytest.raises(CommandError, match="r1, r2 need 4 GPUs, 2 of 4 free; GPU 0: r0, GPU 1: r0"):
        await made.add(delta=2)
    assert await made.add(delta=1) == ["r1"] and made.looks == 1
    assert made.supervisor.ledger.held_by("r1") == (gpu(2).uuid, gpu(3).uuid)


async def test_two_commands_do_not_count_on_the_same_gpu(board: Callable[..., Board]) -> None:
    made = board(2)
    assert await made.add(delta=1) == ["r1"], "it has not been started yet"
    assert made.scaling.replicas.expected == 2, "the views show how many there will be"
    with pytest.raises(CommandError, match="r2 needs 1 GPU, 0 of 2 free; GPU 0: r0, GPU 1: r1"):
        await made.add(delta=1)


async def test_a_number_that_was_reached_meanwhile_is_not_exceeded(board: Callable[..., Board]) -> None:
    made = board(3)
    made.fresh, made.supervisor.gpus = made.supervisor.gpus, (gpu(0), gpu(1, "r9"), gpu(2, "r9"))
    both = [asyncio.ensure_future(made.scaling.scale(to=2)) for _ in range(2)]
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED, timeout=60)
    assert [task.result()["added"] for task in done] == [[]], "the other one adds it"
    async with asyncio.timeout(60):
        await made.supervisor.until(lambda: "r1" in made.supervisor.slots)
    assert made.scaling.indices == [0, 1]


async def test_two_that_wait_for_the_same_look_are_both_added(board: Callable[..., Board]) -> None:
    made = board(3)
    made.fresh, made.supervisor.gpus = made.supervisor.gpus, (gpu(0), gpu(1, "r9"), gpu(2, "r9"))
    both = [asyncio.ensure_future(made.scaling.scale(delta=1)) for _ in range(2)]
    async with asyncio.timeout(60):
        await made.supervisor.until(lambda: sorted(made.supervisor.slots) == ["r0", "r1", "r2"])
    assert made.scaling.indices == [0, 1, 2] and not any(task.done() for task in both)


async def test_fewer_replicas_need_no_gpu(board: Callable[..., Board]) -> None:
    made = board(1)
    with pytest.raises(CommandError, match="0 replicas"):
        await made.add(delta=-1)
    made.supervisor.gpus = ()
    with pytest.raises(CommandError, match="r1 needs 1 GPU, 0 of 0 free"):
        await made.add(delta=1)
    assert made.looks == 1
    made.scaling.indices = [0, 1]
    assert (await made.scaling.scale(delta=-1))["removed"] == ["r1"]
    assert (await made.scaling.scale(to=1))["replicas"] == 1
    assert made.looks == 1


class SlowJournal:
    """A journal whose records wait until they are let through. SIMULATED: a disk that is slow."""

    def __init__(self, made: Board) -> None:
        self._journal = made.supervisor.records.journal
        self.waiting: list[asyncio.Event] = []
        made.supervisor.records.journal = self._write  # type: ignore[method-assign]

    async def _write(self, record: Any) -> None:
        if record["k"] == "replicas":
            self.waiting.append(asyncio.Event())
            await self.waiting[-1].wait()
        await self._journal(record)

    def let_go(self) -> None:
        for event in self.waiting:
            event.set()


async def told(adding: asyncio.Future[Any]) -> Any:
    async with asyncio.timeout(60):
        return await adding


async def test_a_removal_waits_until_what_it_removes_was_made(board: Callable[..., Board]) -> None:
    """A replica whose slot was made after it had been removed ran for ever, and its removal never returned."""
    made = board(3)
    slow = SlowJournal(made)
    adding = asyncio.ensure_future(made.scaling.scale(delta=1))
    async with asyncio.timeout(60):
        await made.supervisor.until(lambda: bool(slow.waiting))
    removing = asyncio.ensure_future(made.scaling.scale(to=1))
    for _ in range(3):
        await asyncio.sleep(0)
        await made.scaling.drain()
    slow.let_go()
    while not removing.done():
        slow.let_go()
        await made.scaling.drain()
        await asyncio.sleep(0.01)
    assert (await told(removing))["removed"] == ["r1"]
    with pytest.raises(CommandError, match="not added: r1"):
        await told(adding)
    slow.let_go()
    assert (sorted(made.supervisor.slots), made.scaling.indices) == (["r0"], [0])


async def test_an_added_replica_that_another_command_removed_and_added_again_is_left_alone(
    board: Callable[..., Board],
) -> None:
    """The first command took the second replica of that name for its own, and dropped it while it ran."""
    made = board(3)
    assert await made.add(delta=1) == ["r1"]
    first, slot = made.waiting, made.supervisor.slots["r1"]
    slot.current.feed(state_machine.Stop())
    made.scaling.indices = [0]
    made.scaling._drop(1)
    second = made.supervisor.slots["r1"] = made.scaling.ensure_slot(1)
    made.scaling.indices = [0, 1]
    with pytest.raises(CommandError, match="r1: another command removed it"):
        await told(first)
    assert made.supervisor.slots["r1"] is second and made.scaling.indices == [0, 1]


async def test_a_removal_ends_although_its_name_was_given_again(board: Callable[..., Board]) -> None:
    made = board(3)
    await made.add(delta=1)
    made.waiting.cancel()
    removing = asyncio.ensure_future(made.scaling.scale(remove="r1"))
    async with asyncio.timeout(60):
        await made.supervisor.until(lambda: "r1" in made.scaling.replicas.leaving)
    await made.scaling.drain()
    made.supervisor.slots.pop("r1", None)
    made.scaling._drop(1)
    made.scaling.ensure_slot(1)
    assert (await told(removing))["removed"] == ["r1"]


async def test_a_change_that_cannot_be_journalled_is_taken_back(board: Callable[..., Board]) -> None:
    made = board(3)

    async def full(record: Any) -> None:
        raise OSError(28, "No space left on device")

    made.supervisor.records.journal = full  # type: ignore[method-assign]
    with pytest.raises(CommandError, match="not added: cannot write the journal: No space left"):
        await made.scaling.scale(delta=1)
    assert made.scaling.indices == [0] and made.supervisor.ledger.held_by("r1") == ()
    assert made.scaling.replicas.expected == 1
    made.scaling.indices = [0, 1]
    with pytest.raises(CommandError, match="not removed: cannot write the journal"):
        await made.scaling.scale(delta=-1)
    assert made.scaling.indices == [0, 1] and made.scaling.replicas.leaving == set()


async def test_a_removal_of_what_cannot_be_killed_says_so(board: Callable[..., Board]) -> None:
    made = board(2)
    await made.add(delta=1)
    made.waiting.cancel()
    slot = made.supervisor.slots["r1"]
    slot.current.machine = MachineState("stopping", 1, stuck=True)
    with pytest.raises(CommandError, match="processes of r1 cannot be killed"):
        await told(asyncio.ensure_future(made.scaling.scale(remove="r1")))


@pytest.mark.parametrize("count", [-1, 0, 257, 1000])
async def test_a_number_that_no_run_can_have_is_refused(tmp_path: Path, count: int) -> None:
    made, journal = scaling(tmp_path, 2)
    with pytest.raises(CommandError, match=f"cannot scale to {count} replicas.* from 1 to 256") as caught:
        await made.scale(to=count)
    assert caught.value.code == "out_of_range" and made.indices == [0, 1] and not journal


async def test_a_number_that_the_machine_should_not_carry_is_refused_with_the_bound_and_the_way(
    tmp_path: Path,
) -> None:
    """``scale 99`` once started 97 replicas on 2 CPUs, and the run could not be stopped any more."""
    made, journal = scaling(tmp_path, 2)
    with pytest.raises(CommandError) as caught:
        await made.scale(to=99)
    assert caught.value.code == "too_many" and made.indices == [0, 1] and not journal
    assert str(caught.value).endswith(
        "cannot scale from 2 to 99 replicas: they take no GPU and share 2 CPUs: at most 8 here, 4 for each CPU. "
        "Nothing was changed. To have so many all the same: liverl-tui scale --force 99, or set "
        "supervise.max_replicas"
    )
    with pytest.raises(CommandError):
        await made.scale(delta=7)


CARDS = ServiceSpec("r{index}", "replica", (), gpus=1)
CPUS = ServiceSpec("r{index}", "replica", ())
SLURM = Machine(cpus=1.5, limited_by="the control group's CPU quota", free=8 << 30, total=16 << 30)
SMALL = Machine(cpus=64.0, limited_by="", free=2 << 30, total=8 << 30)


@pytest.mark.parametrize(
    ("host", "configured", "wanted", "now", "each", "words"),
    [
        (HOST, None, 8, 2, None, ""),
        (HOST, None, 9, 2, None, "at most 8 here"),
        (HOST, None, 9, 12, None, ""),  # fewer than there are: a run that was forced is scaled down
        (HOST, 99, 99, 2, None, ""),
        (HOST, 3, 4, 2, None, "supervise.max_replicas allows 3"),
        (SLURM, None, 6, 1, None, ""),
        (SLURM, None, 7, 1, None, "share 1.5 CPUs, as the control group's CPU quota allows: at most 6 here"),
        (SMALL, None, 9, 2, None, ""),
        (
            SMALL,
            None,
            11,
            2,
            None,
            "9 further replicas would take 1.4 GB of memory, 0.16 GB each, and 1.3 GB",
        ),
        (SMALL, None, 3, 2, 3 << 30, "1 further replica would take 3.2 GB of memory, 3.22 GB each"),
        (SMALL, 50, 50, 2, 3 << 30, ""),  # who sets a number knows
    ],
)
def test_the_bound_knows_the_machine(
    host: Machine, configured: int | None, wanted: int, now: int, each: int | None, words: str
) -> None:
    plan = Plan("p/n", "/r", "managed", (), (), CPUS, 2, settings=Settings(max_replicas=configured))
    why = too_many(plan, host, wanted, now, each)
    assert (why is None) == (not words) and words in (why or "")
    if not configured:
        cards = Plan("p/n", "/r", "managed", (), (), CARDS, 2)
        assert too_many(cards, host, wanted, now, each) is None, "those on GPUs are bounded by their number"


def test_a_run_that_begins_with_more_than_the_machine_should_carry_is_not_started() -> None:
    plan = Plan("p/n", "/r", "managed", (), (), CPUS, 99)
    (check,) = replicas(plan, HOST)
    assert check.status == "fail" and check.text.startswith("run.replicas is 99: they take no GPU")
    assert check.text.endswith("--set supervise.max_replicas=99")
    assert replicas(Plan("p/n", "/r", "managed", (), (), CPUS, 2), HOST)[0].status == "ok"
    assert replicas(Plan("p/n", "/r", "managed", (), (), CARDS, 99), HOST) == []


@pytest.mark.parametrize(
    ("number", "status"), [(None, ""), (32, "ok"), (1_600_000, "ok"), (8_000_000_000, "fail")]
)
def test_a_step_that_no_memory_holds_is_not_begun(number: int | None, status: str) -> None:
    """``training.train_batch_size=1000000000`` was a warning about open files; then the trainer took the memory."""
    plan = Plan("p/n", "/r", "managed", (), (), CPUS, 2, trials_per_step=number)
    found = [check.status for check in trials(plan, HOST)]
    assert found == ([status] if status else [])
    if status == "fail":
        assert (
            "8,000,000,000 trials" in trials(plan, HOST)[0].text
            and "at most 1,677,721" in trials(plan, HOST)[0].text
        )


async def test_who_insists_gets_more(tmp_path: Path) -> None:
    made, _ = scaling(tmp_path, 2)
    made.supervisor.kick = lambda: None
    made.supervisor.add_slot = lambda spec, highest: made.supervisor.slots.setdefault(  # type: ignore[assignment]
        spec.name, SimpleNamespace(name=spec.name, ended=False)
    )
    made.supervisor.used_generations = {}
    waits = asyncio.ensure_future(made.scale(to=12, force=True))
    with suppress(AssertionError):  # they are not listed in the end
        await waits
    assert len(made.indices) == 12


async def test_nothing_is_known_of_a_replica_that_has_left(board: Callable[..., Board]) -> None:
    """Another one of that name has no weights before it says so."""
    made = board(2)
    await made.add(delta=1)
    made.waiting.cancel()
    replicas, slots = made.scaling.replicas, made.supervisor.slots
    replicas.engines.scraped("r1", 0.0, "liverl:policy_version 3")
    replicas.listed.add("r1")
    made.scaling._drop(1)
    assert "r1" not in slots and replicas.engines.get("r1") is None and replicas.listed == set()
