"""Loaded but idle: when it is a verdict, and all that looks like it and is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liverl.observe.engine.idle import IDLE_S, PAUSE_S, IdleDetector, Load, LoadSample

IDLE, BUSY, AWAY = Load(True, False), Load(True, True), Load(False, False)


def watch(*looks: LoadSample, idle: IdleDetector | None = None) -> IdleDetector:
    found = idle or IdleDetector()
    for look in looks:
        found = found.seen(look)
    return found


def each_second(
    begin: int, end: int, a: Load, b: Load, rollout: int | None = 3, **more: bool
) -> list[LoadSample]:
    return [LoadSample(float(at), rollout, {"a": a, "b": b}, **more) for at in range(begin, end + 1)]


def test_idle_beside_a_busy_one_for_a_minute() -> None:
    nearly = watch(*each_second(100, 159, IDLE, BUSY))
    assert nearly.since("a") is None
    there = watch(*each_second(160, 160, IDLE, BUSY), idle=nearly)
    assert there.since("a") == 100.0 and there.since("b") is None
    # It stays, and its begin with it.
    assert watch(*each_second(161, 300, IDLE, BUSY), idle=there).since("a") == 100.0


def test_idle_while_the_proxy_holds_requests_or_others_queue() -> None:
    assert watch(*each_second(0, 60, IDLE, IDLE, held=True)).since("a") == 0.0
    queue = Load(True, True, waiting=True)
    assert watch(*each_second(0, 60, IDLE, queue)).since("a") == 0.0


def test_idle_without_any_work_is_none() -> None:
    assert watch(*each_second(0, 200, IDLE, IDLE)).since("a") is None


def test_the_pauses_between_two_turns_do_not_hide_it() -> None:
    looks = [
        LoadSample(float(t), 1, {"a": IDLE, "b": BUSY if t % int(PAUSE_S) == 0 else IDLE}) for t in range(120)
    ]
    assert watch(*looks).since("a") == 0.0
    looks = [LoadSample(float(t), 1, {"a": IDLE, "b": BUSY if t % 30 == 0 else IDLE}) for t in range(240)]
    assert watch(*looks[:60]).since("a") is None
    assert watch(*looks).since("a") == 0.0, "it had none of the four bursts, and no other request"
    worked = LoadSample(0.0, 1, {"a": BUSY, "b": BUSY})
    assert watch(worked, *looks[1:]).since("a") is None, "it had one: the next may come"


def test_a_step_of_fewer_trials_than_replicas_leaves_some_without() -> None:
    assert watch(*each_second(0, 300, IDLE, BUSY, few=True)).since("a") is None


def test_a_trainer_that_waits_for_its_proxy_calls_nobody_idle() -> None:
    """Nothing worked: there is no burst that it missed."""
    looks = each_second(0, 5, IDLE, IDLE, held=True) + each_second(6, 90, IDLE, IDLE)
    assert watch(*looks).since("a") is None


def test_whatever_ends_it_ends_it_at_once() -> None:
    there = watch(*each_second(0, 90, IDLE, BUSY))
    assert there.since("a") == 0.0
    for after in (
        each_second(91, 91, BUSY, BUSY),  # it runs something
        each_second(91, 91, AWAY, BUSY),  # not ready, not listed, leaving, waiting for weights, not answering
        each_second(91, 91, IDLE, BUSY, rollout=None),  # another phase
        each_second(91, 91, IDLE, BUSY, rollout=4),  # another step
        [LoadSample(91.0, 3, {"b": BUSY})],  # removed
        each_second(120, 120, IDLE, BUSY),  # nobody looked for long
    ):
        ended = watch(*after, idle=there)
        assert ended.since("a") is None
        again = int(after[-1].at) + 1
        step = after[-1].rollout or 3
        assert watch(*each_second(again, again + 30, IDLE, BUSY, rollout=step), idle=ended).since("a") is None


def test_who_has_done_its_share_rests_in_the_tail_of_a_step() -> None:
    worked = watch(*each_second(0, 5, BUSY, BUSY))
    assert watch(*each_second(6, 300, IDLE, BUSY, handed_out=True), idle=worked).since("a") is None
    # While trials are still handed out, and it gets none, it is a verdict, also after the last one has gone out.
    idle = watch(*each_second(6, 70, IDLE, BUSY), idle=worked)
    assert watch(*each_second(71, 90, IDLE, BUSY, handed_out=True), idle=idle).since("a") == 6.0
    # Who never got any is idle in the tail too.
    assert watch(*each_second(0, 60, IDLE, BUSY, handed_out=True)).since("a") == 0.0
    # And what it did in an earlier step is no share of this one.
    next_step = each_second(6, 70, IDLE, BUSY, rollout=4, handed_out=True)
    assert watch(*next_step, idle=worked).since("a") == 6.0


LOADS = st.builds(Load, st.booleans(), st.booleans(), st.booleans())
LOOKS = st.lists(
    st.tuples(
        st.floats(0.1, 30.0),
        st.sampled_from([None, 1, 2]),
        st.dictionaries(st.sampled_from("abc"), LOADS),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(LOOKS)
def test_a_verdict_always_stands_on_a_minute_of_idling_in_one_rollout(
    looks: list[tuple[float, int | None, dict[str, Load], bool, bool]],
) -> None:
    idle, at, seen = IdleDetector(), 0.0, []
    for pause, rollout, loads, held, handed_out in looks:
        at += pause
        look = LoadSample(at, rollout, loads, held, handed_out)
        seen.append(look)
        idle = idle.seen(look)
        for name in "abc":
            since = idle.since(name)
            if since is None:
                continue
            window = [s for s in seen if s.at >= since]
            assert at - since >= IDLE_S and window[0].at == since
            assert all(s.rollout == rollout is not None for s in window)
            assert all(s.loads[name].may_work and not s.loads[name].busy for s in window)
            assert any(s.held or any(o.busy or o.waiting for o in s.loads.values()) for s in window)
