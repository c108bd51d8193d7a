"""The whole transition table of one service, written down by hand: each state met by each event."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from kit.state_machine import EVENTS, EXAMPLES, FAILED, GENERATION, LAST, NOW, RULES, STOP, TREE, Driver
from kit.state_machine import machine as example

from liverl.supervise.services import state_machine as m

# (state, event) -> the fields that change, and what is to be done. A pair that is not here changes nothing.
Outcome = tuple[dict[str, Any], tuple[m.Action, ...]]


def _entering(stage: int, **fields: Any) -> Outcome:
    """A stop stage begins: its own deadline, its own signal."""
    changes = {"state": "stopping", "stage": stage, "deadline": NOW + STOP[stage].grace, **fields}
    return changes, (m.Escalate(GENERATION, STOP[stage]),)


def _stopping(stage: int, after: str, why: str, **fields: Any) -> Outcome:
    """We begin to end a live service; ``why`` is also what it tells of a failure, if that is one."""
    return _entering(stage, since=NOW, after=after, why=why, last_failure=why, ended_by_us=True, **fields)


def _next_start(why: str, **fields: Any) -> Outcome:
    """A new generation is prepared."""
    changes = {"state": "preparing", "generation": GENERATION + 1, "since": NOW, "why": why, "deadline": None}
    return {**changes, "leader_gone": True, "stage": 0, "after": "decide", **fields}, (
        m.Prepare(GENERATION + 1),
    )


def _started_anew(failure: str, **fields: Any) -> Outcome:
    """The first failure within the window: the next generation is prepared at once."""
    told = {"failures": (NOW,), "streak": 1, "last_failure": failure, "ready_at": None}
    return _next_start(f"restarting after: {failure}", **told, **fields)


_EXITED = "its main process exited (exit 1)"
_RUNNING: Outcome = (
    {
        "state": "starting",
        "since": NOW,
        "why": "waiting until it is ready",
        "exit": None,
        "leader_gone": False,
        "deadline": NOW + RULES.startup_deadline,
        "ready_at": None,
    },
    (m.Watch(GENERATION),),
)
_GIVEN_UP: Outcome = (
    {
        "state": "failed",
        "since": NOW,
        "why": "no such file",
        "last_failure": "no such file",
        "leader_gone": True,
        "deadline": None,
    },
    (),
)
_ASKED: Outcome = (
    {
        "state": "waiting",
        "since": NOW,
        "why": "start requested",
        "wanted": True,
        "failures": (),
        "streak": 0,
        "deadline": None,
    },
    (),
)
_DOWN: Outcome = (
    {"state": "stopped", "since": NOW, "why": "stop requested", "wanted": False, "deadline": None},
    (),
)
_LATE = _stopping(0, "down", "as it was", leader_gone=False)  # why it was stopped before it was started

_LIVE: dict[str, Outcome] = {
    "stop": _stopping(0, "down", "stop requested", wanted=False),
    "stop now": _stopping(LAST, "down", "stop requested", wanted=False),
    "restart": _stopping(0, "restart", "asked by W"),
    "dead": _stopping(0, "decide", "silent"),
    "leader exited": _entering(
        *(TREE,), since=NOW, after="decide", why=_EXITED, last_failure="exit 1", exit=FAILED, leader_gone=True
    ),
}
# One that served is down from now on, unless it is to stay stopped.
_SERVES: dict[str, Outcome] = {
    event: (changes if changes.get("wanted") is False else {**changes, "down_since": NOW}, actions)
    for event, (changes, actions) in _LIVE.items()
}
_STOPPING: dict[str, Outcome] = {
    "start": ({"after": "restart"}, ()),
    "stop": ({"after": "down", "wanted": False}, ()),
    "stop now": _entering(LAST, after="down", wanted=False),
    "restart": ({"after": "restart"}, ()),
    "yield": ({"after": "hold"}, ()),
}
_ENDED: dict[str, Outcome] = {
    "start": _ASKED,
    "restart": _ASKED,
    "stop": ({"wanted": False}, ()),
    "stop now": ({"wanted": False}, ()),
}
TABLE: dict[str, dict[str, Outcome]] = {
    "waiting": {
        "stop": _DOWN,
        "stop now": _DOWN,
        "dependencies met": _next_start("its dependencies are met"),
        "spawned": _RUNNING,
    },
    "preparing": {
        "stop": _DOWN,
        "stop now": _DOWN,
        "prepared": ({"why": "starting the process"}, ()),
        "prepare failed": _started_anew("port held", since=900.0),  # the state stays the same
        "prepare failed for good": _GIVEN_UP,
        "spawned": _RUNNING,
    },
    "starting": {
        **_LIVE,
        "up": ({"state": "ready", "since": NOW, "why": "ready", "deadline": None, "ready_at": NOW}, ()),
        "prepare failed": _started_anew("port held"),
        "prepare failed for good": _GIVEN_UP,
    },
    "ready": {**_SERVES, "down": ({"state": "degraded", "since": NOW, "why": "slow"}, ())},
    "degraded": {**_SERVES, "up": ({"state": "ready", "since": NOW, "why": "ready again"}, ())},
    "stopping": {
        **_STOPPING,
        "leader exited": _entering(TREE, exit=FAILED, leader_gone=True),
    },
    "stopping swept": {**_STOPPING, "tree empty": _started_anew("exit 1")},
    "stopped": {**_ENDED, "spawned": (_LATE[0], (m.Watch(GENERATION), *_LATE[1]))},
    "failed": _ENDED,
    "gave_up": _ENDED,
    "backing_off": {"start": _ASKED, "restart": _ASKED, "stop": _DOWN, "stop now": _DOWN},
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(EXAMPLES, EVENTS)))
def test_each_state_meets_each_event(state: str, event: str) -> None:
    before = example(state)
    changes, actions = TABLE[state].get(event, ({}, ()))
    assert m.step(before, EVENTS[event], NOW, RULES) == (replace(before, **changes), actions)


def test_it_is_down_until_it_serves_again_or_is_not_wanted() -> None:
    history = Driver(example("ready")).feed(m.LeaderExited(GENERATION, FAILED))
    history.now += 2
    history.feed(m.TreeEmpty(GENERATION))
    assert (history.machine.state, history.machine.down_since) == ("preparing", NOW)
    number = history.machine.generation
    history.feed(m.Prepared(number), m.Spawned(number))
    assert (history.machine.state, history.machine.down_since) == ("starting", NOW)
    served = replace(history.machine)
    assert m.step(served, m.ProbeReady(number), NOW + 9, RULES)[0].down_since is None
    assert m.step(served, m.Stop(), NOW + 9, RULES)[0].down_since is None
    assert m.step(example("starting"), m.LeaderExited(GENERATION, FAILED), NOW, RULES)[0].down_since is None


def test_every_event_does_something_somewhere() -> None:
    # due does: its deadlines are in the examples' future, and test_state_machine_stop.py lets them come
    assert {event for row in TABLE.values() for event in row} == EVENTS.keys() - {"due"}
    assert TABLE.keys() == EXAMPLES.keys()
