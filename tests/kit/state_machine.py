"""One service's state machine under test: its rules, and one complete example of each state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from liverl.model import Exit, ServiceState
from liverl.plan.spec import RestartPolicy, StopStage
from liverl.supervise.services import state_machine as m

NOW = 1000.0  # seconds; the example units reached their state before it
GENERATION = 3
# No two numbers are equal, and the tree stage is neither the second nor the last: what takes the wrong one shows.
STOP = (
    StopStage("INT", "leader", 7.0),
    StopStage("TERM", "leader", 11.0),
    StopStage("TERM", "tree", 5.0),
    StopStage("KILL", "tree", 3.0),
)
TREE, LAST = 2, 3
POLICY = RestartPolicy(
    mode="on_failure", base=1.0, cap=8.0, jitter=0.25, window=100.0, max_failures=3, stable=50.0
)
RULES = m.RestartRules(restart=POLICY, stop=STOP, startup_deadline=30.0)
FAILED = Exit(code=1)

_ALIVE: dict[str, Any] = {"leader_gone": False}
EXAMPLES: dict[str, m.MachineState] = {
    name: m.MachineState(
        generation=GENERATION,
        since=900.0,
        why="as it was",
        **{"state": name.partition(" ")[0], **fields},
    )
    for name, fields in {
        "waiting": {},
        "preparing": {},
        "starting": {**_ALIVE, "deadline": 1030.0},
        "ready": {**_ALIVE, "ready_at": 990.0},
        "degraded": {**_ALIVE, "ready_at": 990.0},
        "stopping": {**_ALIVE, "deadline": 1007.0, "ready_at": 990.0, "last_failure": "why it stops"},
        # the leader has ended; what is left of its tree is being swept
        "stopping swept": {"stage": TREE, "deadline": 1005.0, "exit": FAILED, "last_failure": "exit 1"},
        "stopped": {"wanted": False},
        "failed": {"exit": FAILED, "last_failure": "exit 1", "failures": (980.0,), "streak": 1},
        "gave_up": {"exit": FAILED, "last_failure": "exit 1", "failures": (970.0, 980.0), "streak": 2},
        "backing_off": {
            "exit": FAILED,
            "last_failure": "exit 1",
            "failures": (980.0,),
            "streak": 1,
            "deadline": 1004.0,
        },
    }.items()
}

EVENTS: dict[str, m.Input] = {
    "start": m.Start(),
    "stop": m.Stop(),
    "stop now": m.Stop(now=True),
    "restart": m.Restart("asked by W"),
    "yield": m.AwaitSuccessor(),
    "dependencies met": m.DependenciesMet(),
    "prepared": m.Prepared(GENERATION),
    "prepare failed": m.PrepareFailed(GENERATION, "port held"),
    "prepare failed for good": m.PrepareFailed(GENERATION, "no such file", final=True),
    "spawned": m.Spawned(GENERATION),
    "up": m.ProbeReady(GENERATION),
    "down": m.ProbeUnready(GENERATION, "slow"),
    "dead": m.LivenessFailed(GENERATION, "silent"),
    "leader exited": m.LeaderExited(GENERATION, FAILED),
    "tree empty": m.TreeEmpty(GENERATION),
    "due": m.DeadlinePassed(),
}


def machine(example: str, **changes: Any) -> m.MachineState:
    """The example of that name with some fields changed."""
    return replace(EXAMPLES[example], **changes)


def state_of(example: str) -> ServiceState:
    return EXAMPLES[example].state


def rules(**policy: Any) -> m.RestartRules:
    """``RULES`` with some fields of the restart policy changed."""
    return with_fields(RULES, restart=with_fields(POLICY, **policy))


class Driver:
    """Carries a unit through a history: feeds events, keeps the clock and what was to be done."""

    def __init__(self, start: m.MachineState, rules: m.RestartRules = RULES, now: float = NOW) -> None:
        self.machine, self.rules, self.now = start, rules, now
        self.actions: list[m.Action] = []

    def feed(self, *events: m.Input) -> Driver:
        for event in events:
            self.machine, actions = m.step(self.machine, event, self.now, self.rules)
            self.actions += actions
        return self

    def due(self) -> Driver:
        """The clock reaches the deadline, and the driver says so."""
        assert self.machine.deadline is not None, f"{self.machine.state} has no deadline"
        self.now = self.machine.deadline
        return self.feed(m.DeadlinePassed())

    def boot(self) -> Driver:
        """From waiting or preparing to ready."""
        if self.machine.state == "waiting":
            self.feed(m.DependenciesMet())
        generation = self.machine.generation
        return self.feed(m.Prepared(generation), m.Spawned(generation), m.ProbeReady(generation))

    def end(self, code: int = 1) -> Driver:
        """The leader ends, and then its tree is empty."""
        generation = self.machine.generation
        return self.feed(m.LeaderExited(generation, Exit(code=code)), m.TreeEmpty(generation))

    @property
    def stages(self) -> list[StopStage]:
        return [action.stage for action in self.actions if isinstance(action, m.Escalate)]
