"""An advice names no key that nothing uses in the run, and no GPUs in a run on CPUs: each one, in each kind of run."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from kit.alert_texts import found
from kit.plans import plan_of

import liverl.diagnose.where.bottleneck as bottleneck
from liverl.causes.catalogue import rows
from liverl.diagnose.advice import (
    BATCH,
    NOTHING,
    WORKERS,
    Means,
    fitted,
    fitted_cause,
    fitting,
    keys_in,
    means,
)
from liverl.diagnose.scaling import when_to_scale
from liverl.diagnose.where.bottleneck import Kind
from liverl.model import Cause, Symptom

RUNS = {
    "embedded": ("embedded", ()),
    "verl on CPUs": ("cpu-verl", ()),
    "chat": ("cpu-verl", ("agent.kind=chat",)),
    "tools": ("cpu-verl", ("agent.kind=tools", "agent.functions=/x.py")),
    "verl on GPUs": (
        "h200-smoke",
        ("model.model_path=/m", "agent.kind=chat"),
    ),
    "script": ("liverl-gen1", ("trainer.kind=command", "trainer.command=[/x.sh]")),
}
_ENDS = (";", ",", " or", " then", " and")
SCALE = "the trainer waited 68% of the last step for rollouts"


@functools.cache
def of(run: str) -> Means:
    profile, sets = RUNS[run]
    plan = plan_of(*sets, profile=profile)
    return means(plan.inert, cpus=plan.cpus)


def advices() -> Iterator[str]:
    """All of alerts, of causes, and of the parts of a step."""
    for texts in found():
        yield from texts.fix
    yield from (row.fix for row in rows() if row.fix)
    for table in (bottleneck._PARTS, bottleneck._EMBEDDED, bottleneck._HARBOR, bottleneck._OWN):
        yield from (one.fix.format(key=one.key) for one in table.values())


@pytest.mark.parametrize("run", RUNS)
def test_no_advice_names_what_the_run_does_not_have(run: str) -> None:
    known, told = of(run), 0
    for advice in advices():
        fits = fitting(advice, known)
        assert known.inert.isdisjoint(keys_in(fits)), (advice, fits)
        assert not known.cpus or ("more GPUs" not in fits and "GPUs of their own" not in fits), (advice, fits)
        assert fits == advice or (fits == fits.strip() and not fits.endswith(_ENDS)), (advice, fits)
        assert fits.count("(") == fits.count(")") or advice.count("(") != advice.count(")"), (advice, fits)
        told += bool(fits)
    assert told > 100, told


CHAT = Means(frozenset({WORKERS, "a.inert", "b.inert"}), cpus=True)


@pytest.mark.parametrize(
    ("advice", "fits"),
    [
        ("", ""),
        ("raise a.live", "raise a.live"),
        ("raise a.inert", ""),
        ("raise a.inertly", "raise a.inertly"),
        ("see a.inert/x", "see a.inert/x"),
        ("raise a.inert, or add a replica", "add a replica"),
        ("add a replica or raise a.inert", "add a replica"),
        ("set a.inert to token, or to null", ""),
        ("open one; then raise a.inert; or stop the run", "open one; or stop the run"),
        ("open one, or raise a.inert; see the log", "open one; see the log"),
        ("raise a.inert. Look with: ray status", "Look with: ray status"),
        ("with a.inert: true they go; otherwise remove them", "remove them"),
        ("half of a.live, a.inert: 0.0 and b.inert: true", "half of a.live"),
        ("a lower a.live, a higher a.inert, or b.inert: true", "a lower a.live"),
        ("lower a.inert or a.live", "lower a.live"),
        ("set a.live to 1.0 or lower (in a.inert)", ""),
        (f"lower {WORKERS} by half", f"lower {BATCH} by half"),
        (f"Lower {WORKERS}, or add a replica", f"Lower {BATCH}, or add a replica"),
        (
            f"Run fewer pods at once ({WORKERS}), and look at d",
            f"Run fewer pods at once ({BATCH}), and look at d",
        ),
        ("Raise a.inert, and look at the disk", "look at the disk"),
        ("Run it on every node, and check that a.inert fits", "Run it on every node"),
        (f"raise {WORKERS}", ""),
        ("give the trainer more GPUs (a.live), or keep it on them (b.live)", "keep it on them (b.live)"),
        ("use GPUs of their own (a.live, or add a b.live)", ""),
        ("compare its GPU with others", "compare its GPU with others"),
    ],
)
def test_clauses_that_do_not_hold_are_left_out(advice: str, fits: str) -> None:
    assert fitting(advice, CHAT) == fits
    assert fitting(advice, Means()) == advice


def test_a_smaller_batch_is_named_only_where_it_is_a_key_of_the_run() -> None:
    asynchronous = Means(frozenset({WORKERS, BATCH}))
    assert fitting(f"lower {WORKERS} by half", asynchronous) == ""
    assert fitting(f"lower {WORKERS} by half", Means()) == f"lower {WORKERS} by half"


def test_a_key_that_the_launch_script_sets_is_named_as_such() -> None:
    script = Means(mirrored=frozenset({"a.live"}))
    assert fitting("halve a.live", script) == "halve a.live (your launch script sets a.live)"


def test_an_alert_and_a_cause_without_an_advice_left_say_so() -> None:
    symptom = Symptom("x", "warning", "t", "c", "raise a.inert", patch={"a.inert": "1", "a.live": "2"})
    assert (fitted(symptom, CHAT).fix, fitted(symptom, CHAT).patch) == (NOTHING, {"a.live": "2"})
    cause = Cause(None, "t", 0.0, fix="raise a.inert, or rest", patch={"a.inert": "1"})
    assert (fitted_cause(cause, CHAT).fix, fitted_cause(cause, CHAT).patch) == (NOTHING, {})
    assert fitted_cause(Cause(None, "t", 0.0), CHAT).fix == ""


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("verl on CPUs", f"When to scale: {SCALE}."),
        (
            "verl on GPUs",
            f"When to scale: {SCALE}: use GPUs of their own for rollouts (verl.rollout_mode standalone, or a fully "
            "asynchronous script).",
        ),
        ("embedded", f"When to scale: {SCALE}: first run more trials at once ({WORKERS})."),
    ],
)
def test_when_to_scale(run: str, words: str) -> None:
    assert when_to_scale({"timing_s/step": 1.0, "timing_s/gen": 0.68}, {}, run=of(run)) == words


def test_the_bottleneck_names_a_key_of_the_run() -> None:
    shares = {"update": 0.8, "generate": 0.2}
    for run, key in (("verl on CPUs", ""), ("verl on GPUs", "infrastructure.nnodes")):
        told = bottleneck.bottleneck(shares, None, Kind(), {}, of(run))
        assert told is not None and told.key == key
        assert told.sentence.startswith("80 % of the step is the update of the policy")
        assert (": " in told.sentence) is bool(key)


AGAIN = "liverl-tui up --resume r"


@pytest.mark.parametrize(
    ("fix", "told"),
    [
        ("wait, and start one after another (a.inert)", "wait, and start one after another"),
        (f"give each its own (a.inert, b.inert); then: {AGAIN}", f"give each its own; then: {AGAIN}"),
        (f"give each its own (a.inert); lower a.live; then: {AGAIN}", f"lower a.live; then: {AGAIN}"),
        ("raise a.inert", NOTHING),
        ("raise it (a.inert is read by nobody)", NOTHING),
        (f"raise a.inert; then: {AGAIN}", AGAIN),
    ],
)  # fmt: skip
def test_what_is_to_be_done_is_told_without_the_key_behind_it(fix: str, told: str) -> None:
    symptom = fitted(Symptom(id="x", severity="critical", title="t", cause="c", fix=fix), CHAT)
    assert symptom.fix == told
