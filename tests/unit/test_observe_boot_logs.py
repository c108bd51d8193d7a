"""What logs say of a start and of an end, line by line: causes, stages, figures, replicas and prefixes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.engines.vllm.boot import BOOT, SERVER_STAGE
from liverl.logs.last_lines import TailIndex, last_lines, read_tail, time_of
from liverl.logs.prefixes import colourless, plain, without_prefix
from liverl.logs.ray_prefixes import LogProcess
from liverl.observe.boot.facts import BootFacts, TrainerFacts, engine_facts, trainer_facts
from liverl.observe.boot.lines import LITELLM, RAY, TRAINER, stages_of
from liverl.observe.boot.replica_stages import EngineEvent, ReplicaStages, TrainerLog
from liverl.observe.boot.stages import StageParser, StageTracker, stage_of
from liverl.procs.shares import shares

# -- prefixes and tails


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("\x1b]0;title\x07x\x1b]8;;u\x1b\\y", "xy"),
        ("\x1bMx", "x"),
        ("10%\r100%", "100%"),
        ("10%\r100%\r", "100%"),
        ("10%\r\r\r", "10%"),
        ("\r", ""),
        ("", ""),
    ],
)
def test_a_line_as_a_terminal_shows_it(line: str, shown: str) -> None:
    assert plain(line) == shown
    if "\r" not in line:
        assert colourless(line) == shown


def test_prefixes_are_split_off() -> None:
    assert without_prefix("(A pid=1, ip=10.0.0.1) (B pid=2) x (C pid=3)") == (
        "(A pid=1, ip=10.0.0.1) (B pid=2) ",
        "x (C pid=3)",
    )
    assert without_prefix("x (A pid=1) y") == ("", "x (A pid=1) y")


@given(st.lists(st.sampled_from([b"a", b"bb", b"", b"  ", b"ccc"]), max_size=8), st.booleans(), st.data())
def test_a_tail_is_the_end_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, whole: list[bytes], ended: bool, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    content = b"\n".join(whole) + (b"\n" if ended else b"")
    path.write_bytes(content)
    start = data.draw(st.integers(0, len(content) + 2))
    most = data.draw(st.integers(0, len(content) + 2))
    tail, offset = read_tail(path, most, start)
    first = max(start, len(content) - most)
    if first >= len(content):
        assert (tail, offset) == (b"", len(content))
    elif first == start or content[first - 1 : first] == b"\n":
        assert (tail, offset) == (content[first:], first)
    else:
        after = content.find(b"\n", first) + 1 or first
        assert (tail, offset) == (content[after:], after)
    shown = [line.decode().rstrip() for line in content.split(b"\n")]
    for n in (0, 1, 2, 99):
        assert last_lines(path, n) == ([line for line in shown if line][-n:] if n else [])


def test_an_index_says_when_a_byte_was_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    index = TailIndex(log, interval=2.0)
    for size, now, written in (
        (10, 100.0, True),
        (20, 101.9, False),
        (20, 102.0, True),
        (20, 110.0, False),
        (30, 90.0, True),
    ):
        log.write_bytes(b"x" * size)
        assert index.tick(now) is written, "a clock that was set back does not stop it"
    assert index.path.read_text() == "10 100.000\n20 102.000\n30 90.000\n"
    with index.path.open("a") as file:
        file.write("x y\n1 2 3\n\n40 120.5\n50 130")
    assert [time_of(log, at) for at in (0, 10, 20, 30, 40)] == [100.0, 102.0, 90.0, 120.5, None]
    again = TailIndex(log, interval=2.0)
    log.write_bytes(b"x" * 60)
    assert not again.tick(120.5) and not again.tick(121.0) and again.tick(122.5)
    log.write_bytes(b"x" * 70)
    assert again.tick(122.0), "set back by half a second"


def test_an_index_of_which_no_entry_is_whole_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    Path(f"{log}.idx").write_text("oops\n9 1")
    log.write_text("x")
    assert TailIndex(log).tick(1e9)


def test_actors_share_a_tree() -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1}
    assert shares([1, 2, 3, 4, 5], parents, {2: "a", 4: "b"}) == {"a": {2, 3}, "b": {4}}
    assert shares([3], {3: 3}, {}) == {} and shares([], parents, {2: "a"}) == {}
    assert shares([4], {4: 7}, {7: "a"}) == {"a": {4}}, "an actor outside of the tree counts"


# -- figures of a start

SAID = [
    ("Initializing a V1 LLM engine (v0.24.0) with config: x", {"version": "0.24.0"}),
    ("Loading weights took 1.50 seconds", {"load_seconds": 1.5}),
    ("Model loading took 27.65 GiB memory and 12.250 seconds", {"load_gib": 27.65, "load_seconds": 12.25}),
    ("Model loading took 3 GiB and 4 seconds", {"load_gib": 3.0, "load_seconds": 4.0}),
    ("torch.compile took 20.5 s in total", {"compile_seconds": 20.5}),
    ("Available KV cache memory: 1,027.5 GiB", {"kv_gib": 1027.5}),
    ("GPU KV cache size: 7,247,264 tokens", {"kv_tokens": 7_247_264}),
    (
        "Maximum concurrency for 4,096 tokens per request: 1,769.35x",
        {"request_tokens": 4096, "max_concurrency": 1769.35},
    ),
    ("Capturing CUDA graphs (mixed):  24%|2 | 12/51 [00:00<00:00]", {"graphs": (12, 51)}),
    ("Graph capturing finished in 7 secs, took 0.5 GiB", {"graph_seconds": 7.0}),
    ("init engine (profile, create kv cache, warmup model) took 16.28 s", {"engine_seconds": 16.28}),
    ("Starting vLLM server on http://0.0.0.0:8000", {"address": "http://0.0.0.0:8000", "port": 8000}),
    ("Starting vLLM server on http://[::1]:81/", {"address": "http://[::1]:81/", "port": 81}),
    ("Starting vLLM server on unix:/tmp/x", {"address": "unix:/tmp/x"}),
    ("HTTP server started on port 4711", {"port": 4711}),
    ("vLLMHttpServer, replica_rank: 3, node_rank: 0", {"rank": 3}),
]


@pytest.mark.parametrize(("line", "facts"), SAID)
def test_what_an_engine_says_of_its_start(line: str, facts: dict[str, object]) -> None:
    expected = BootFacts(**facts)  # type: ignore[arg-type]
    assert engine_facts(BootFacts(), ["x", line, "Loading weights took long"], BOOT) == expected
    assert engine_facts(expected, ["x"], BOOT) is expected
    # After the start only what is not known yet is taken.
    known = BootFacts(**dict.fromkeys(facts, "1"))  # type: ignore[arg-type]
    assert engine_facts(known, [line], BOOT, started=True) == known
    assert engine_facts(BootFacts(), [line], BOOT, started=True) == expected
    assert engine_facts(known, [line], BOOT) == expected


def test_what_is_said_last_counts() -> None:
    lines = [
        "Loading weights took 1 s",
        "Loading weights took 2 s",
        "replica_rank: 1",
        "HTTP server started on port 1",
    ]
    assert engine_facts(BootFacts(port=5), lines, BOOT) == BootFacts(load_seconds=2.0, rank=1, port=1)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("Total training steps: 12", TrainerFacts(total_steps=12)),
        ("Total training steps:7", TrainerFacts(total_steps=7)),
        (
            "(TaskRunner pid=9) wandb: 🚀 View run at https://wandb.ai/me/p/runs/ab12",
            TrainerFacts(trackers={"wandb": "https://wandb.ai/me/p/runs/ab12"}),
        ),
        (
            "wandb: 🚀 View run small grpo at: http://wandb.local:8080/me/p/runs/ab12?apiKey=secret",
            TrainerFacts(trackers={"wandb": "http://wandb.local:8080/me/p/runs/ab12"}),
        ),
        ("wandb: ⭐️ View project at https://wandb.ai/me/p", TrainerFacts()),
        ("View run at https://elsewhere.invalid/x", TrainerFacts()),
        (
            "Saving tensorboard log to tensorboard_log/p/e.",
            TrainerFacts(trackers={"tensorboard": "tensorboard_log/p/e"}),
        ),
        ("LLMServerManager: ['h:1', '[::1]:2']", TrainerFacts(addresses=("h:1", "[::1]:2"))),
        ("AgentLoopManager: ['h:1']", TrainerFacts(addresses=("h:1",))),
        ("OtherManager: ['h:1']", TrainerFacts()),
        ("Training from scratch", TrainerFacts(from_step=0)),
        ("Resuming from /x, setting global step to 8", TrainerFacts(from_step=8)),
        ("pending: 1, running: 2, finished: 3, failure: 4", TrainerFacts(rollouts=(1, 2, 3, 4))),
        ("pending: 1, running: 2", TrainerFacts()),
        ("Saving checkpoint to /a b/global_step_4  ", TrainerFacts(saving="/a b/global_step_4")),
        ("Saving checkpoint to ", TrainerFacts()),
        ("('Final validation metrics: {}')", TrainerFacts(finished=True)),
        ("hello", TrainerFacts()),
    ],
)
def test_what_a_trainer_says(line: str, facts: TrainerFacts) -> None:
    assert trainer_facts(TrainerFacts(), [line]) == facts
    assert trainer_facts(TrainerFacts(), ["x", line, "y"]) == facts
    known = TrainerFacts(9, ("z:1",), 9, (9, 9, 9, 9), "z", True)
    assert (trainer_facts(known, [line]) is known) == (facts == TrainerFacts())


# -- stages


@pytest.mark.parametrize("kind", ["litellm", "trainer", "ray", "smoke", "vllm"])
def test_every_line_of_the_table_reaches_its_stage(kind: str) -> None:
    for rank, rules in enumerate(stages_of(kind)):
        for rule in rules:
            parser = StageParser(kind)
            assert parser.rank == -1
            if rule.bar is None and not rule.within:
                assert parser.feed(f"x {rule.stem} y\n") == (
                    rule.words,
                    1.0 if rule.words == "training complete" else None,
                )
                assert parser.rank == rank
                assert parser.done is (kind in ("ray", "smoke", "vllm") and rank == len(stages_of(kind)) - 1)
        parser = StageParser(kind)
        parser.reach(rank)
        assert (parser.rank, parser.stage) == (rank, (rules[0].words, None))
        parser.reach(rank - 1)
        assert parser.rank == rank
    assert stages_of("none") == () and stage_of("none", "x") is None
    assert (len(LITELLM), len(RAY), len(TRAINER)) == (3, 2, 14)


def test_how_far_the_making_of_the_smoke_model_is() -> None:
    parser = StageParser("smoke")
    told = [
        parser.feed(line + "\n")
        for line in (
            "making the smoke model in /w/model",
            "model: 1,000 parameters, 9 tokens; 32 tasks, conversations of up to 90 tokens",
            "training: step 34 of at most 600, loss 0.213, correct conversations 12%",
            "trained for 61 s: correct conversations 52%",
        )
    ]
    making = "making a tiny model to train"
    assert told == [(making, None), (making, None), (f"{making}: step 34 of at most 600", None),
                    ("checking the tiny model", None)]  # fmt: skip


def test_another_word_for_a_stage_that_is_reached_changes_nothing() -> None:
    parser = StageParser("vllm")
    parser.feed("Loading weights took 1 s\n")
    parser.reach(4)
    assert parser.stage == ("weights loaded", None), "it was there already"
    assert parser.feed("Starting to load model\n") == ("loading weights", None)
    assert parser.feed("Using max model len 9\n") == ("loading weights", None)
    assert parser.feed("Loading safetensors checkpoint shards:  50% Completed | 1/2\r") == (
        "loading weights",
        0.5,
    )
    both = "Model loading took 1 GiB\nLoading safetensors checkpoint shards: 100% Completed | 3/2\n"
    assert parser.feed(both) == ("loading weights", 1.0), "never more than the whole"
    assert parser.feed("Loading safetensors checkpoint shards: 100% Completed | 0/0\n") == (
        "loading weights",
        None,
    )
    assert parser.feed("torch.compile took 1 s\nStarting to load model\n") == ("compiled", None)


def test_a_torn_bar_is_passed_over_for_the_last_whole_one() -> None:
    bars = "Capturing CUDA graphs:  2%| | 1/51\rCapturing CUDA graphs:  4%| | 2/51\rCapturing CUDA gr"
    assert stage_of("vllm", bars) == ("CUDA graphs 2/51", 2 / 51)
    torn = bars + "aphs: 6%|"
    assert stage_of("vllm", torn) == ("CUDA graphs 2/51", 2 / 51)
    assert stage_of("vllm", "\x1b[1mCapturing\x1b[0m CUDA graphs: | 1/2") == ("CUDA graphs 1/2", 0.5)


def test_a_proxy_serves_when_one_of_its_workers_does() -> None:
    parser = StageParser("litellm")
    assert parser.feed("Uvicorn running on http://x\n") == ("importing", None) and not parser.done
    assert parser.feed("Started server process [1]\n") == ("config", None) and not parser.done
    assert parser.feed("Application startup complete.\n") == ("serving", None) and parser.done
    parser = StageParser("litellm")
    assert parser.feed("Application startup complete.\n") == ("startup complete", None) and not parser.done
    assert parser.feed("Uvicorn running on http://x\n") == ("serving", None) and parser.done


PENDING = "pending: 1, running: 2, finished: 3, failure: 4\n"
ROLLOUTS = "rollouts: 2 running, 1 pending, 3 finished, 4 failed"


def test_what_happens_within_a_step_is_shown_with_it() -> None:
    parser = StageParser("trainer")
    assert parser.feed(PENDING) == (ROLLOUTS, None), "no step is known"
    assert parser.feed("Training Progress:  0%|  | 0/4 [00:00]\n") == ("step 0/4", 0.0)
    assert parser.feed("Initial validation metrics: {}\n") == ("step 0/4, initial validation done", 0.0)
    assert parser.feed(PENDING) == (f"step 0/4, {ROLLOUTS}", 0.0)
    assert parser.feed("x\n") == (f"step 0/4, {ROLLOUTS}", 0.0)
    assert parser.feed("Training Progress:  0%|  | 0/4 [00:09]\n") == (f"step 0/4, {ROLLOUTS}", 0.0), (
        "drawn again"
    )
    both = PENDING + "Training Progress:  0%|  | 0/4 [00:10]\n"
    assert parser.feed(both) == (f"step 0/4, {ROLLOUTS}", 0.0)
    assert parser.feed("Training Progress: 25%|  | 1/4 [00:20]\n") == ("step 1/4", 0.25)
    saving = "Saving checkpoint to /x/global_step_1\n"
    assert parser.feed(saving + PENDING + saving) == ("step 1/4, saving the checkpoint of step 1", 0.25)
    assert parser.feed(PENDING + "Training Progress: 50%|  | 2/4 [00:30]\n") == ("step 2/4", 0.5)
    ahead = "Training Progress: 75%|  | 3/4 [00:30]\n" + PENDING
    assert parser.feed(ahead) == (f"step 3/4, {ROLLOUTS}", 0.75)
    assert parser.feed("Final validation metrics: {}\n") == ("training complete", 1.0)
    assert not parser.done


def test_steps_of_a_trainer_without_a_bar() -> None:
    parser = StageParser("trainer")
    assert parser.feed("step:3 - a:1\n") == ("step 3", None)
    assert parser.feed("Total training steps: 8\n") == ("step 3", None)
    assert parser.feed("step:4 - a:1 - global_step:9 - x/step:7 - y\n") == ("step 4/8", 0.5)
    assert parser.feed("Total training steps: 8\nTotal training steps: 16\nstep:4 - a:1\n") == (
        "step 4/16",
        0.25,
    )
    assert stage_of("trainer", "Total training steps: 6\n") == ("6 steps planned", None)
    assert stage_of("trainer", "Total training steps: 0\nstep:4 - a:1\n") == ("step 4/0", None)
    resumed = "Resuming from /x/global_step_8, setting global step to 8\n"
    assert stage_of("trainer", resumed) == ("resuming from step 8", None)


def test_a_line_that_is_torn_between_two_looks_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tracker = StageTracker(path, "vllm")
    assert tracker.poll() is None and not tracker.done
    lines = "Initializing a V1 LLM engine (v0.24.0)" + "x" * 300
    path.write_text(lines[:25])
    assert tracker.poll() is None
    path.write_text(lines)
    assert tracker.poll() == ("engine", None) and tracker.facts.version == "0.24.0"
    assert tracker.poll() == ("engine", None)
    with path.open("a") as file:
        file.write("\nApplication startup complete.\n")
    assert tracker.poll() == ("server up", None) and tracker.done
    path.unlink()
    assert tracker.poll() == ("server up", None)


# -- replicas in a trainer's log

SERVER = "(vLLMHttpServer pid=7) "
NOW = 1_800_000_000.0


def events(stages: ReplicaStages, *texts: str, prefix: str = SERVER) -> list[EngineEvent]:
    stages.feed("".join(f"{prefix}{text}\n" for text in texts), NOW)
    return stages.take_events()


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("requests have been drained", EngineEvent(7, "drained", NOW)),
        ("It took 1.5 seconds to fall asleep.", EngineEvent(7, "slept", NOW, 1.5)),
        (
            "It took 0.25 seconds to wake up tags ['weights', 'kv_cache'].",
            EngineEvent(7, "woke", NOW, 0.25, ("kv_cache", "weights")),
        ),
        ("It took 0.25 seconds to wake up tags None.", EngineEvent(7, "woke", NOW, 0.25)),
        ('It took 3 seconds to wake up tags {"weights"}.', EngineEvent(7, "woke", NOW, 3.0, ("weights",))),
        ("Loading weights took 2 seconds (from the trainer)", EngineEvent(7, "updated", NOW, 2.0)),
        ("Successfully reset prefix cache", EngineEvent(7, "cache_reset", NOW)),
        (
            "Successfully reset prefix cache [repeated 4x across cluster]",
            EngineEvent(7, "cache_reset", NOW, repeated=4),
        ),
        ("It took 3 seconds to start", None),
        ("Loading weights took 2 seconds", None),
        ("hello", None),
    ],
)
def test_what_an_engine_does_for_the_trainer(text: str, event: EngineEvent | None) -> None:
    stages = ReplicaStages()
    assert events(stages, text) == ([event] if event else [])
    assert stages.take_events() == []
    assert (stages.boots[7].rank > SERVER_STAGE, stages.boots[7].up) == (
        (True, True) if event else (False, False)
    )
    assert events(stages, text, prefix="(Other pid=8) ") == [] and set(stages.boots) == {7}


def test_memory_that_a_sleep_freed_is_added_up_over_its_gpus() -> None:
    freed = "Sleep mode freed {} GiB memory, 1.5 GiB memory is still in use."
    slept = "It took 1 seconds to fall asleep."
    stages = ReplicaStages()
    found = events(
        stages, freed.format("10.5"), freed.format(2), "Successfully reset prefix cache", slept, slept
    )
    assert [(event.kind, event.freed_gib) for event in found] == [
        ("cache_reset", None),
        ("slept", 12.5),
        ("slept", None),
    ]
    assert events(stages, freed.format(3)) == [] and stages.boots[7].rank <= SERVER_STAGE + 1
    other = "(vLLMHttpServer pid=8) "
    assert [event.freed_gib for event in events(stages, slept, prefix=other)] == [None], "its own GPUs alone"
    assert [event.freed_gib for event in events(stages, slept)] == [3.0]


def test_a_line_that_is_not_finished_counts_for_its_stage_alone() -> None:
    stages = ReplicaStages()
    stages.feed(SERVER + "Using max model len 9", NOW)
    assert stages.boots[7].stage == "config"
    stages.feed(" It took 1 seconds to fall asleep.", NOW)
    assert stages.take_events() == []
    stages.feed("\n", NOW)
    assert [event.seconds for event in stages.take_events()] == [1.0]
    stages.feed(SERVER + "It took 2 seconds to fall", NOW)
    stages.forget_line()
    stages.feed(" asleep.\n", NOW)
    assert stages.take_events() == []


def test_an_unfinished_line_is_kept_up_to_256_kib() -> None:
    for length, kept in ((200 << 10, True), (300 << 10, False)):
        stages = ReplicaStages()
        stages.feed(SERVER + "x" * length, NOW)
        stages.feed(" It took 2 seconds to fall asleep.\n", NOW)
        assert bool(stages.take_events()) is kept


def test_an_actor_is_known_by_its_pid_before_it_has_a_name() -> None:
    stages = ReplicaStages()
    stages.feed("(pid=7) hello\n", NOW)
    assert stages.boots == {}
    stages.watch([7])
    stages.feed("(pid=7, ip=10.0.0.1) hello\n(Odd pid=7, ip=10.0.0.2) (EngineCore pid=70) x\n", NOW)
    stages.feed(
        "(Later pid=7) (EngineCore pid=70) x\n(Odd pid=7) (Worker pid=71) (EngineCore pid=70) x\n", NOW
    )
    boot = stages.boots[7]
    assert (boot.name, boot.ip) == ("Odd", "10.0.0.2")
    assert boot.processes == (LogProcess("EngineCore", 70), LogProcess("Worker", 71))
    stages.watch([8])
    stages.feed("(A pid=8) x\n(pid=7) x\n", NOW)
    assert list(stages.boots) == [7, 8]


def test_replicas_serve_when_the_trainer_lists_as_many_addresses() -> None:
    stages = ReplicaStages()
    stages.feed("(vLLMHttpServer pid=1) x\nLLMServerManager: ['h:1']\n(vLLMHttpServer pid=2) x\n", NOW)
    assert not any(boot.up for boot in stages.boots.values()), "two replicas, one address"
    stages.feed("LLMServerManager: ['h:1', 'h:2']\nTotal training steps: 4\n", NOW)
    assert all(boot.up for boot in stages.boots.values()) and stages.trainer.total_steps == 4
    # A replica that comes later is not made to serve by lines that say nothing new.
    stages.feed("(vLLMHttpServer pid=3) x\nLLMServerManager: ['h:1', 'h:2']\n", NOW)
    assert [boot.up for boot in stages.boots.values()] == [True, True, False]


def test_a_trainers_log_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = TrainerLog(path)
    path.write_bytes(
        SERVER.encode() + "It took 1 seconds to fall äsleep.\n".encode() + b"Total training steps: 3"
    )
    log.poll(NOW)
    assert log.facts.total_steps is None
    with path.open("ab") as file:
        file.write(b"0\n" + SERVER.encode() + "Ü".encode()[:1])
    log.poll(NOW)
    assert log.facts.total_steps == 30
    with path.open("ab") as file:
        file.write("Ü".encode()[1:] + b" It took 4 seconds to fall asleep.\n")
    log.poll()
    (event,) = log.replicas.take_events()
    assert event.seconds == 4.0 and abs(event.at - time.time()) < 60
    (tmp_path / "new").write_text(f"half a line\n{SERVER}It took 9 seconds to fall asleep.\n")
    os.replace(tmp_path / "new", path)
    log.poll(NOW)
    assert [event.seconds for event in log.replicas.take_events()] == [9.0]
