"""Where the time of a step goes: parts, what trials waited for, the one sentence, and what takes longer than before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kit import where_runs

from liverl.diagnose.advice import Means
from liverl.diagnose.where import NewestStepTime, step_time
from liverl.diagnose.where.parts import parts_of
from liverl.diagnose.where.slower import slower
from liverl.diagnose.where.words import lines, note
from liverl.model import (
    Bottleneck,
    EngineFacts,
    PhaseTimes,
    ReplicaStatus,
    ReplicaTimes,
    SlowTrial,
    StepMetrics,
    StepTail,
    StepTime,
    StepTrials,
    TrialHead,
    TrialsStatus,
)
from liverl.observe.metrics.recent import RecentSteps, StepCollector, of_steps
from liverl.observe.metrics.step_lines import parse_metrics_record, parse_step_line
from liverl.observe.trials.replica_names import replica_name
from liverl.observe.trials.tallies import Tally

DATA = Path(__file__).parents[1] / "data"
EMBEDDED = {"trial/mean": 1.0}  # a time that only the embedded trainer writes


def metrics(count: int = 6, **seconds: float) -> RecentSteps:
    """So many equal steps of ten seconds."""
    values = {f"timing_s/{name}": value for name, value in {"step": 10.0, **seconds}.items()}
    return of_steps(StepMetrics(step, values) for step in range(1, count + 1))


def trials(
    count: int = 6,
    waits: Mapping[str, float] = {},
    *,
    harbor: bool = True,
    running: int = 0,
    **more: Any,
) -> TrialsStatus:
    """So many equal steps of 32 trials."""
    phases = {"setup": PhaseTimes(32, 1.0, 2.0)} if harbor else {}
    step = {"total": 32 + running, "finished": 32, "zero_tool_calls": 0, "mean_reward": 0.5, "phases": phases}
    steps = [StepTrials(step=number, waits=dict(waits), **step, **more) for number in range(count, 0, -1)]
    return TrialsStatus(steps=tuple(steps))


def tail(seconds: float, *, number: int = 3, long: bool = True) -> StepTail:
    """The trials that end last, in a step whose trials ran for 9 s."""
    return StepTail(number, 32, seconds, 9.0, long)


def found(recent: RecentSteps, known: TrialsStatus | None = None) -> Bottleneck | None:
    time = step_time(recent, known or TrialsStatus(), {})
    assert time is not None
    return time.bottleneck


GEN = {"gen": 9.0, "update_actor": 0.5}
TOOLS = {"queue": 0.0, "sandbox": 10.0, "model": 60.0, "tool": 230.0}
QUEUED = {**TOOLS, "queue": 100.0}
MODEL = {"model": 280.0, "tool": 20.0}
SLOW = {"a": ReplicaTimes(8, 1000, 10.0), "b": ReplicaTimes(8, 1000, 30.0), "c": ReplicaTimes(8, 1000, 9.0)}
# What is known -> what it waits for, the key, and words of the sentence; None: nothing is said.
CASES: dict[str, tuple[RecentSteps, TrialsStatus | None, tuple[str, str, str] | None]] = {
    "update": (
        metrics(gen=2.0, update_actor=6.0),
        None,
        ("update", "infrastructure.nnodes", "60 % of the step is the update of the policy"),
    ),
    "actor and critic are one part": (
        metrics(gen=3.9, update_actor=3.0, update_critic=3.0),
        None,
        ("update", "infrastructure.nnodes", "60 %"),
    ),
    "log-probabilities": (
        metrics(gen=2.0, old_log_prob=3.0, ref=2.0),
        None,
        ("log_probs", "infrastructure.nnodes", "training.ref_offload"),
    ),
    "weights": (metrics(gen=1.0, update_weights=6.0), None, ("weights", "trainer.env", "60 %")),
    "reward": (metrics(gen=3.0, reward=6.0), None, ("reward", "reward.function", "60 %")),
    "checkpoint": (metrics(gen=1.0, save_checkpoint=8.0), None, ("checkpoint", "training.save_freq", "80 %")),
    "validation": (metrics(gen=1.0, testing=8.0), None, ("validation", "training.test_freq", "80 %")),
    "validation beside the step": (metrics(gen=4.0, update_actor=3.0, testing=8.0), None, None),
    "four steps": (metrics(4, gen=2.0, update_actor=6.0), None, None),
    "29 %": (metrics(gen=2.8, update_actor=2.9, old_log_prob=2.8, reward=1.5), None, None),
    "the rest is largest": (metrics(gen=1.0, update_actor=4.0), None, None),
    "rollouts of which nothing is known": (metrics(gen=5.0, update_actor=4.5), None, None),
    "parts in parallel": (metrics(gen=8.0, update_actor=8.5), None, None),
    "no parts": (metrics(), None, None),
    "tools, all at once": (
        metrics(**GEN),
        trials(waits=TOOLS),
        ("tool", "harbor_agent.environment_override_cpus", "69 % of the step the trials wait for tools"),
    ),
    "tools, some in the queue": (
        metrics(**GEN),
        trials(waits=QUEUED),
        ("tool", "harbor_runtime.num_workers", "run more trials at once"),
    ),
    "tools of an agent of one's own": (
        metrics(**GEN),
        trials(waits=QUEUED, harbor=False),
        ("tool", "agent.command", "69 %"),
    ),
    "embedded, all at once": (metrics(**GEN, **EMBEDDED), trials(waits=TOOLS), None),
    "sandboxes": (
        metrics(**GEN),
        trials(waits={"sandbox": 200.0, "model": 60.0, "tool": 40.0}),
        ("sandbox", "harbor_agent.environment_force_build", "60 % of the step the trials wait for sandboxes"),
    ),
    "verifiers": (
        metrics(**GEN),
        trials(waits={"model": 100.0, "verifier": 200.0}, harbor=False),
        ("verifier", "agent.verifier", "60 %"),
    ),
    "tools of too few steps": (metrics(**GEN), trials(4, waits=TOOLS), None),
    "tools of steps that still run": (metrics(**GEN), trials(waits=TOOLS, running=1), None),
    "the model": (metrics(**GEN), trials(waits=MODEL), None),
    "the model before the update": (metrics(gen=5.0, update_actor=4.5), trials(waits=MODEL), None),
    "the update before tools": (
        metrics(gen=4.0, update_actor=5.0),
        trials(waits=TOOLS),
        ("update", "infrastructure.nnodes", "50 %"),
    ),
    "agents without durations": (metrics(**GEN), trials(waits={"agent": 300.0}), None),
    "long tail": (
        metrics(**GEN),
        trials(waits=MODEL, tail=tail(6.2)),
        (
            "tail",
            "harbor_runtime.tail_kill_target",
            "62 % of the step waits for the 3 slowest of 32 trials: end such trials earlier "
            "(harbor_runtime.tail_kill_target: 0.9)",
        ),
    ),
    "long tail of tools": (
        metrics(**GEN),
        trials(
            waits={**MODEL, "queue": 60.0},
            tail=tail(6.2, number=1),
            slowest=(SlowTrial("t", "t", "finished", spent_on="tool"),),
        ),
        (
            "tail",
            "harbor_runtime.tail_kill_target",
            "the slowest of 32 trials, most of its time for tools: end such trials earlier "
            "(harbor_runtime.tail_kill_target: 0.9), or run more trials at once (harbor_runtime.num_workers)",
        ),
    ),
    "long tail without Harbor": (
        metrics(**GEN),
        trials(waits=MODEL, tail=tail(6.2), harbor=False),
        ("tail", "harbor_agent.override_timeout_sec", "62 %"),
    ),
    "a tail of a shorter part than the update": (
        metrics(gen=4.5, update_actor=5.0),
        trials(waits=MODEL, tail=tail(6.2)),
        ("update", "infrastructure.nnodes", "50 %"),
    ),
    "long tail of the embedded trainer": (
        metrics(**GEN, **EMBEDDED),
        trials(waits=MODEL, tail=tail(6.2)),
        ("tail", "harbor_agent.override_timeout_sec", "62 %"),
    ),
    "short tail": (metrics(**GEN), trials(waits=MODEL, tail=tail(2.9)), None),
    "last trials that began late": (
        metrics(**GEN),
        trials(waits={**MODEL, "queue": 100.0}, tail=tail(4.0, long=False)),
        (
            "waves",
            "harbor_runtime.num_workers",
            "40 % of the step waits for the last 3 of 32 trials, which begin late",
        ),
    ),
    "last trials, no queue": (metrics(**GEN), trials(waits=MODEL, tail=tail(4.0, long=False)), None),
    "a tail that the trainer does not wait for": (
        of_steps(
            StepMetrics(s, {"timing_s/step": 10.0, "timing_s/gen": 9.0, "fully_async/count/x": 1.0})
            for s in range(6)
        ),
        trials(waits=MODEL, tail=tail(6.2)),
        None,
    ),
    "slow replica": (
        metrics(**GEN),
        trials(waits=MODEL, replicas=SLOW),
        (
            "replica",
            "nvidia-smi -q -d PERFORMANCE,CLOCK",
            "57 % of the step waits for b, which takes 3.2 times as long for a token",
        ),
    ),
    "slow replica of ours": (
        metrics(**GEN, **EMBEDDED),
        trials(waits=MODEL, replicas=SLOW),
        ("replica", "liverl-tui restart b", "restart it (liverl-tui restart b)"),
    ),
    "a replica that is not twice as slow": (
        metrics(**GEN),
        trials(waits=MODEL, replicas={**SLOW, "b": ReplicaTimes(8, 1000, 18.0)}),
        None,
    ),
    "a replica with more to do": (
        metrics(**GEN),
        trials(waits=MODEL, replicas={**SLOW, "b": ReplicaTimes(16, 1000, 30.0)}),
        None,
    ),
    "one replica": (metrics(**GEN), trials(waits=MODEL, replicas={"b": SLOW["b"]}), None),
    "verl's own agent loop": (
        metrics(**GEN, **{"agent_loop/generate_sequences/mean": 2.0, "agent_loop/tool_calls/mean": 6.0}),
        None,
        ("tool", "agent.command", "68 %"),
    ),
    "verl's loop without the model": (metrics(**GEN, **{"agent_loop/tool_calls/mean": 6.0}), None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_or_none(name: str) -> None:
    recent, known, expected = CASES[name]
    time = step_time(recent, known or TrialsStatus(), {})
    told = time.bottleneck if time is not None else None
    if expected is None:
        assert told is None
        return
    assert told is not None and (told.what, told.key) == expected[:2]
    assert expected[2] in told.sentence and told.key in told.sentence
    assert told.sentence.startswith(f"{100 * told.share:.0f} % of the step ") and told.share >= 0.3


def test_a_replica_that_was_slow_in_few_steps_is_not_named() -> None:
    once = trials(
        6, waits=MODEL, replicas={"a": ReplicaTimes(8, 1000, 10.0), "b": ReplicaTimes(8, 1000, 10.0)}
    )
    steps = list(once.steps)
    steps[2] = trials(
        1, waits=MODEL, replicas={"a": ReplicaTimes(8, 1000, 10.0), "b": ReplicaTimes(8, 1000, 400.0)}
    ).steps[0]
    assert found(metrics(**GEN), TrialsStatus(steps=tuple(steps))) is None


@pytest.mark.parametrize("name", where_runs.RUNS)
def test_recorded_runs_name_what_was_slow_in_them_and_others_nothing(name: str) -> None:
    what, _ = where_runs.RUNS[name]
    facts = where_runs.recorded(name)
    time = step_time(facts.recent, facts.trials, facts.names)
    assert time is not None and sum(time.shares.values()) == pytest.approx(1.0, abs=0.1)
    assert (time.bottleneck.what if time.bottleneck is not None else "") == what
    if what == "replica":
        assert time.bottleneck is not None and "waits for replica-0, which" in time.bottleneck.sentence


# Recordings of verl on GPUs and CPUs -> what their steps wait for. Of their trials nothing is known.
RECORDED = {
    "recordings/h200/verl.log": "",
    "recordings/h200_run/trainer.log": "",
    "recordings/h200_run/standalone.log": "",  # 48 % update, of four steps
    "recordings/verl_cpu/run6steps.stdout.log": "",
    "doctor/P01-dead-engine/train.log": "",
    "doctor/P07-harbor-networks/train.log": "",
    "learning/lora-not-delivered.log": "",
    "learning/embedded-seed1.jsonl": "",
    "learning/fully-async-2-hosts.jsonl": "update",  # 2.1 s of 2.4 s, while the trainer is idle for 3 %
}


@pytest.mark.parametrize("path", RECORDED)
def test_recordings_of_verl(path: str) -> None:
    steps = StepCollector()
    for line in (DATA / path).read_text(errors="replace").splitlines():
        step = parse_metrics_record(line.encode()) if path.endswith("jsonl") else parse_step_line(line)
        steps.add([step] if step is not None else [])
    time = step_time(steps.recent(), TrialsStatus(), {})
    assert time is not None and sum(time.shares.values()) == pytest.approx(1.0, abs=0.1)
    assert (time.bottleneck.what if time.bottleneck is not None else "") == RECORDED[path]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({"step": 10.0, "gen": 6.0, "update_actor": 3.0}, {"generate": 6.0, "update": 3.0, "other": 1.0}),
        (
            {"step": 10.0, "gen": 6.0, "generate_sequences": 5.0},
            {"generate": 6.0, "other": 4.0},
        ),  # it is part of gen
        ({"step": 10.0, "timing_s/param_sync": 2.0}, {"weights": 2.0, "other": 8.0}),
        ({"step": 10.0, "gen": 9.0, "testing": 5.0}, {"generate": 9.0, "other": 1.0}),
        ({"step": 10.0, "gen": 9.0, "testing": 1.0}, {"generate": 9.0, "validation": 1.0, "other": 0.0}),
        ({"step": 10.0, "gen": 9.0, "save_checkpoint": 5.0}, {"generate": 9.0, "other": 1.0}),
        ({"step": 10.0, "gen": 10.1}, {"generate": 10.1, "other": 0.0}),  # rounded
        ({"step": 10.0, "gen": 9.0, "update_actor": 9.0}, {}),
        ({"gen": 9.0}, {}),
        ({"step": 10.0}, {}),
    ],
)
def test_parts_of_a_step(seconds: dict[str, float], expected: dict[str, float]) -> None:
    assert parts_of({f"timing_s/{name}": value for name, value in seconds.items()}) == expected


def head(number: int, begin: float, end: float, **more: Any) -> TrialHead:
    fields: dict[str, Any] = {
        "step": 1, "task": "t", "turns": 1, "tool_calls": 1, "reward": 1.0, "finish_reason": "stop",
        "completion_tokens": 100, "replica": None, "state": "finished",
    }  # fmt: skip
    phases = {"queue": 50.0, "setup": 1.0, "agent": end - begin - 1.0}
    return TrialHead(
        f"t{number}", started_at=begin, updated_at=end + 5, ended_at=end, phases=phases, **{**fields, **more}
    )


def tally(*heads: TrialHead) -> Tally:
    made = Tally()
    for one in heads:
        made.add(one)
    return made


USUAL = [head(n, 100.0, 110.0 + n / 10) for n in range(18)]  # they end at 110.0 to 111.7


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        (USUAL[:7], None),
        ([*USUAL, head(18, 100.0, 130.0), head(19, 100.0, 140.0)], StepTail(2, 20, 28.3, 40.0, True)),
        ([*USUAL, head(18, 100.0, 114.0), head(19, 100.0, 140.0)], StepTail(1, 20, 26.0, 40.0, True)),  # one alone
        ([*USUAL, head(18, 120.0, 130.0), head(19, 130.0, 140.0)], StepTail(2, 20, 28.3, 40.0, False)),  # late
        ([*USUAL, head(18, 100.0, 111.9), head(19, 100.0, 140.0, state="running")], StepTail(1, 19, 0.2, 11.9, False)),
    ],
)  # fmt: skip
def test_the_last_trials_of_a_step(heads: list[TrialHead], expected: StepTail | None) -> None:
    whole, half = tally(*heads), tally(*heads[::2])
    half.take(tally(*heads[1::2]))
    assert whole.tail() == half.tail() == expected


def test_what_trials_waited_for_and_which_replica_answered() -> None:
    served = [
        head(1, 100.0, 111.0, model_seconds=4.0, replica="http://a"),
        head(2, 100.0, 111.0, model_seconds=6.0, replica="http://a", flags=("moved_replica",)),
        head(3, 100.0, 111.0, model_seconds=2.0, replica="http://b", completion_tokens=50),
        head(4, 100.0, 111.0, model_seconds=2.0, replica="http://b", state="cut_off"),
        head(5, 100.0, 111.0, model_seconds=2.0, replica="http://b", dumped=True),
    ]
    whole, parts = tally(*served), tally(served[0])
    parts.take(tally(*served[1:]))
    for one in (whole, parts):
        assert one.waits == {"queue": 150.0, "sandbox": 3.0, "model": 12.0, "tool": 18.0}
        assert one.replicas == {"http://a": ReplicaTimes(1, 100, 4.0), "http://b": ReplicaTimes(1, 50, 2.0)}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://10.0.0.1:4000", "replica-3"),
        ("http://10.0.0.1:4000/v1", "replica-3"),
        ("http://10.0.0.1:4000/v1/chat/completions", "replica-3"),
        ("http://10.0.0.2:4000/v1", "10.0.0.2:4000"),
        ("replica-7", "replica-7"),
    ],
)
def test_replicas_have_their_names(address: str, name: str) -> None:
    assert replica_name(address, {"http://10.0.0.1:4000": "replica-3"}) == name


def grown(part: str, factor: float, since: int = 20) -> RecentSteps:
    def step(number: int) -> StepMetrics:
        wave = 1.0 + 0.01 * (number % 3)
        seconds = {"gen": 6.0 * wave, "update_actor": 2.0 * wave, "save_checkpoint": 1.0}
        seconds[part] *= 1.0 + (factor - 1.0) * max(0, number - since) / 20
        times = {f"timing_s/{name}": value for name, value in seconds.items()}
        return StepMetrics(number, {**times, "timing_s/step": sum(seconds.values()) + 0.5})

    return of_steps(map(step, range(1, 41)))


def up_and_down() -> RecentSteps:
    """The update takes 2 s in six steps, then 6 s in six, and so on: it was not faster before, only now and then."""
    values = ({"timing_s/step": 12.0, "timing_s/update_actor": 2.0 + 4.0 * (s // 6 % 2)} for s in range(48))
    return of_steps(StepMetrics(s, one) for s, one in enumerate(values))


def faster_for_a_while() -> RecentSteps:
    """The rollouts take 8 s, from step 20 on 3 s, and from step 40 on 8 s again."""
    seconds = (3.0 if 20 <= s < 40 else 8.0 + 0.1 * (s % 3) for s in range(60))
    return of_steps(
        StepMetrics(s, {"timing_s/step": one + 1.0, "timing_s/gen": one}) for s, one in enumerate(seconds)
    )


@pytest.mark.parametrize(
    ("recent", "words"),
    [
        (
            grown("update_actor", 3.0),
            "update takes 2.8 times as long as up to step 5: 2.02 s then, 5.71 s in the newest 5 steps",
        ),
        (grown("gen", 2.0), "generate takes 1.9 times as long"),
        (grown("update_actor", 1.4), ""),
        (grown("gen", 1.45), ""),
        (grown("gen", 1.0), ""),
        (up_and_down(), ""),
        (faster_for_a_while(), ""),
        (grown("save_checkpoint", 5.0), ""),  # it comes now and then
        (RecentSteps(), ""),
        (metrics(9, gen=9.0), ""),
    ],
)
def test_what_takes_longer_and_since_when(recent: RecentSteps, words: str) -> None:
    assert slower(recent).startswith(words) if words else slower(recent) == ""


def test_only_the_newest_ten_steps_count() -> None:
    slow = [StepMetrics(s, {"timing_s/step": 10.0, "timing_s/update_actor": 8.0}) for s in range(1, 30)]
    mended = [
        StepMetrics(s, {"timing_s/step": 2.4, "timing_s/update_actor": 0.4, "timing_s/gen": 2.0})
        for s in range(30, 40)
    ]
    assert found(of_steps(slow)) is not None and found(of_steps([*slow, *mended])) is None


def test_it_is_worked_out_again_where_something_has_changed_only() -> None:
    newest, steps = NewestStepTime(), StepCollector()
    steps.add([StepMetrics(s, {"timing_s/step": 10.0, "timing_s/gen": 9.0}) for s in range(1, 7)])
    none, some = TrialsStatus(), trials(waits=MODEL, replicas=SLOW)
    first = newest.of(steps.recent(), none, {})
    assert first is not None and newest.of(steps.recent(), none, {}) is first
    second = newest.of(steps.recent(), some, {})
    assert second is not None and second.bottleneck is not None
    third = newest.of(steps.recent(), some, {"b": "replica-1"})
    assert third is not None and third.bottleneck is not None and "replica-1" in third.bottleneck.sentence
    steps.add([StepMetrics(7, {"timing_s/step": 10.0, "timing_s/gen": 9.0})])
    fourth = newest.of(steps.recent(), some, {"b": "replica-1"})
    assert fourth is not None and fourth.steps == 7


def test_lines_of_text() -> None:
    time = StepTime(
        6, 12.34, {"tool": 0.7, "update": 0.296, "weights": 0.004}, Bottleneck(0.7, "tool", "so", "k"), "it"
    )
    assert lines(time) == [
        "a step takes 12 s (the median of the newest 6 steps): tools 70 %, update 30 %",
        "bottleneck: so",
        "slower: it",
    ]
    assert lines(StepTime(1, 2.0, {"generate": 1.0})) == [
        "a step takes 2.0 s (the newest step): rollouts 100 %",
        "no bottleneck is named: that takes 5 steps, and 1 said how long they took",
    ]


def test_where_no_bottleneck_is_named_it_says_so_and_what_may_be_tried() -> None:
    """29 % of the trials' time was in the queue, and nothing said which key limits it. Whether more at once shorten the
    step depends on how busy the replicas are, which its times do not say."""
    some = step_time(metrics(**GEN, **EMBEDDED), trials(waits={**MODEL, "queue": 120.0}), {})
    assert some is not None and some.bottleneck is None
    assert (some.queue, some.queue_key) == (0.286, "harbor_runtime.num_workers")
    assert lines(some)[1] == (
        "84 % of the step the trials wait for the model: trials spend 29 % of their time in the queue; more at once "
        "(harbor_runtime.num_workers) help only while replicas and hosts have room"
    )
    assert note(some) == (f"newest 6 steps (median): {lines(some)[1]}; tools 6 %, update 5 %, the rest 5 %")
    few = step_time(metrics(**GEN, **EMBEDDED), trials(waits={**MODEL, "queue": 20.0}), {})
    assert few is not None and lines(few)[1] == "84 % of the step the trials wait for the model"
    unknown = step_time(metrics(**GEN), trials(waits=MODEL), {})
    assert unknown is not None and unknown.queue is None, "no queue was recorded: that is not 0"


def engine(answers: float, seconds: float, tokens: float) -> ReplicaStatus:
    """A replica that answered so many in the last minute, with so many seconds and tokens each."""
    facts = EngineFacts(answers=answers, seconds_per_answer=seconds, seconds_per_token=seconds / tokens)
    return ReplicaStatus("replica-0", "ready", None, True, engine=facts)


def test_a_part_that_most_of_a_step_goes_to_is_named_although_nothing_is_advised() -> None:
    """83 % for the model was "no single bottleneck"."""
    time = StepTime(6, 10.0, {"model": 0.83, "tool": 0.16, "other": 0.01})
    assert (
        note(time)
        == "newest 6 steps (median): 83 % of the step the trials wait for the model; tools 16 %, the rest 1 %"
    )
    agents = StepTime(6, 10.0, {"agent": 0.9, "other": 0.1})
    assert (
        lines(agents)[1]
        == "90 % of the step the agents' own programs work, beside recorded calls of the model"
    )
    shared = StepTime(6, 10.0, {"model": 0.29, "tool": 0.28, "update": 0.25, "other": 0.18})
    assert lines(shared)[1] == "no single bottleneck", "under 30 % no part is named"
    early = StepTime(4, 10.0, {"model": 0.83, "other": 0.17})
    assert lines(early)[1].startswith("no bottleneck is named: that takes 5 steps")


def test_how_much_of_the_wait_for_the_model_the_engines_take_is_said_where_it_is_known() -> None:
    one = {"a": ReplicaTimes(8, 1000, 10.0)}  # 10 ms a token
    known = trials(waits=MODEL, replicas=one)
    newest = NewestStepTime()
    time = newest.of(metrics(**GEN), known, {}, replicas=[engine(50.0, 0.2, 50.0)])  # 4 ms a token
    assert time is not None and time.engine == 0.4 and time.bottleneck is None
    assert lines(time)[1] == (
        "84 % of the step the trials wait for the model: the engines themselves take about 40 % of that"
    )
    silent = ReplicaStatus("replica-0", "ready", None, True)
    unknown = NewestStepTime().of(metrics(**GEN), known, {}, replicas=[silent])
    assert unknown is not None and unknown.engine is None and "engines" not in lines(unknown)[1]


def test_where_the_cpus_are_full_more_at_once_is_not_advised() -> None:
    recent, queued = metrics(**GEN, **EMBEDDED), trials(waits={**MODEL, "queue": 120.0})
    newest = NewestStepTime()
    for _ in range(9):
        time = newest.of(recent, queued, {}, cpu_percent=100.0)
    assert time is not None and time.cpus_full is None and time.queue_key, "nine looks are too few"
    time = newest.of(recent, queued, {}, cpu_percent=100.0)
    assert time is not None and time.cpus_full and time.queue_key == ""
    assert lines(time)[1] == (
        "84 % of the step the trials wait for the model: the CPUs of the host are full: more trials at once would "
        "not help; trials spend 29 % of their time in the queue"
    )
    for _ in range(30):
        time = newest.of(recent, queued, {}, cpu_percent=94.0)
    assert time is not None and time.cpus_full is False and time.queue_key
    late = trials(waits={**MODEL, "queue": 100.0}, tail=tail(4.0, long=False))
    newest = NewestStepTime()
    for _ in range(10):
        time = newest.of(recent, late, {}, cpu_percent=99.0)
    assert time is not None and time.bottleneck is not None and "num_workers" not in time.bottleneck.sentence
    assert lines(time)[1].endswith(
        "begin late; the CPUs of the host are full: more trials at once would not help"
    )


def test_a_key_that_the_run_does_not_use_is_not_named() -> None:
    known = trials(waits={**MODEL, "queue": 120.0})
    time = step_time(metrics(**GEN), known, {}, Means(frozenset({"harbor_runtime.num_workers"})))
    assert (
        time is not None and time.queue_key == "" and lines(time)[1].endswith("% of their time in the queue")
    )
    others = step_time(metrics(**GEN), trials(waits={**MODEL, "queue": 120.0}, harbor=False), {})
    assert others is not None and others.queue_key == "", "who runs these trials is not known"


def test_rollouts_of_which_nothing_is_known_are_said_to_be_unknown() -> None:
    time = step_time(metrics(**GEN), TrialsStatus(), {})
    assert time is not None
    assert (
        lines(time)[1]
        == "no bottleneck is named: what the trials waited for is known of fewer than 5 of them"
    )
    one = [*trials(1, waits=TOOLS).steps]
    some = step_time(metrics(**GEN), TrialsStatus(steps=tuple(one)), {})
    assert some is not None and "not known" not in note(some), "the rows of that step tell it"
