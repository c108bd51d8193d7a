"""What an attempt waited for until its first step, told from its events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.diagnose.first_step import parts, words
from liverl.model import Event


def event(at: float, what: str) -> Event:
    """``proxy: preparing``, ``env:proxy: ready after 7 s``, ``step 3``, ``discovery``, ..."""
    name, found, text = what.partition(": ")
    if what.startswith("step "):
        return Event(1, at, "step", what, data={"step": int(what[5:])})
    if not found:
        return Event(1, at, what, what)
    if name.startswith("env:"):
        return Event(1, at, "environment", text, service=name)
    return Event(1, at, "state", text, service=name, data={"state": text.partition(" ")[0]})


EMBEDDED = [
    (0.0, "run_started"),
    (0.02, "env:proxy: creating an environment for proxy"),
    (0.02, "replica-0: preparing"),
    (0.74, "replica-0: ready after 0.6 s"),
    (7.36, "env:proxy: ready after 7.4 s"),
    (7.37, "proxy: preparing"),
    (10.75, "proxy: ready after 3.4 s"),
    (10.76, "trainer: preparing"),
    (11.06, "trainer: ready after 0.3 s"),
    (15.27, "step 1"),
    (19.47, "step 2"),
]
VERL = [
    (0.0, "run_started"),
    (0.01, "sessions: preparing"),
    (0.02, "env:verl: looking"),
    (0.16, "env:verl: ready after 0.2 s"),
    (0.16, "ray: preparing"),
    (0.59, "sessions: ready after 0.4 s"),
    (5.76, "ray: ready after 5.6 s"),
    (5.76, "trainer: preparing"),
    (82.01, "discovery"),
    (96.46, "discovery"),
    (132.4, "replicas_found"),
    (132.42, "proxy: preparing"),
    (138.14, "step 0"),
    (138.47, "trainer: ready after 132.5 s"),
    (143.04, "proxy: ready after 10.6 s"),
    (147.14, "step 1"),
]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            EMBEDDED,
            "first step after 15.3 s: environment proxy 7.3 s, proxy 3.4 s, the trainer's start 0.3 s, the step 4.2 s",
        ),
        (
            VERL,
            "first step after 2m27s: environment verl 0.1 s, ray 5.6 s, the trainer's start 1m16s, "
            "its replicas 50.4 s, "
            "the first weights 6.1 s, the step 8.7 s",
        ),
        # a second start of what was waited for counts with the first: both were before it was ready
        (
            [
                (0, "run_started"),
                (0, "ray: preparing"),
                (4, "ray: failed"),
                (5, "ray: preparing"),
                (9, "ray: ready after 4 s"),
                (9, "trainer: preparing"),
                (10, "trainer: ready"),
                (12, "step 1"),
            ],
            "first step after 12.0 s: ray 9.0 s, the trainer's start 1.0 s, the step 2.0 s",
        ),
        # nothing is known of what it waited for
        (
            [(0, "run_started"), (3, "trainer: preparing"), (4, "trainer: ready"), (6, "step 1")],
            "first step after 6.0 s: waiting 3.0 s, the trainer's start 1.0 s, the step 2.0 s",
        ),
        ([(0, "run_started"), (2, "step 8")], "first step after 2.0 s: the step 2.0 s"),
        ([(0, "run_started"), (2, "step 0")], ""),
        ([(0, "run_started")], ""),
        ([], ""),
    ],
)
def test_what_the_first_step_waited_for(told: list[tuple[float, str]], expected: str) -> None:
    events = [event(1000 + at, what) for at, what in told]
    earlier = [event(at, what) for at, what in EMBEDDED]  # of the attempt before
    assert words([*earlier, *events], 1000) == expected


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100),
            st.sampled_from(
                [what for _, what in (*EMBEDDED, *VERL)]
                + ["trainer: failed", "trainer: preparing", "x: ready"]
            ),
        ),
        max_size=30,
    )
)
def test_the_parts_are_the_whole_time(told: list[tuple[float, str]]) -> None:
    events = [event(at, what) for at, what in sorted(told)]
    found = parts(events, 0)
    step = next((one for one in events if one.kind == "step" and one.data["step"]), None)
    assert (step is None) == (found == [])
    if step is not None:
        assert sum(part.seconds for part in found) == pytest.approx(step.at - events[0].at)
        assert all(part.seconds >= 0 for part in found), found
