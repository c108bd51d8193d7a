"""Replicas told apart in one trainer's log: a real run of two of them, and prefixes in every form."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverl.logs.ray_prefixes import LogProcess, PrefixedLine, parse_prefixes
from liverl.observe.boot.facts import TrainerFacts
from liverl.observe.boot.replica_stages import READ, EngineEvent, ReplicaStages, TrainerLog

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
VERL = RECORDINGS / "h200/verl.log"
NOW = time.mktime((2026, 11, 21, 0, 22, 0, 0, 0, -1))
EARLY, LATE = 4547, 4546  # pids of the two actors, in the order in which they came up
FOLDED = (
    " [repeated 5x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log "
    "deduplication, or see https://docs.ray.io/x for more options.)"
)


def follow(size: int = 0) -> tuple[ReplicaStages, dict[int, list[str]]]:
    """The recording in pieces of ``size`` characters, or line by line, and the stages of each replica."""
    text = VERL.read_bytes().decode()
    replicas = ReplicaStages()
    seen: dict[int, list[str]] = {}
    for piece in (
        [text[at : at + size] for at in range(0, len(text), size)] if size else text.splitlines(keepends=True)
    ):
        for pid, boot in replicas.feed(piece, NOW).items():
            words = seen.setdefault(pid, [])
            if boot.stage not in words:
                words.append(boot.stage)
    return replicas, seen


def test_both_replicas_of_a_real_run_go_through_their_stages() -> None:
    replicas, seen = follow()
    stages = [
        "process", "config", "engine", "dist init", "loading weights", "weights loaded", "KV cache",
    ]  # fmt: skip
    # Eager: nothing is compiled, no graph is captured. Ray delivered one line of each when it was past it.
    assert seen == {
        EARLY: [*stages, "engine up", "server up"],
        LATE: [*stages, "server", "server up"],
    }
    first, second = replicas.boots[EARLY], replicas.boots[LATE]
    assert (first.facts.version, first.facts.kv_tokens, first.facts.kv_gib) == ("0.24.0", 7247264, 27.65)
    assert (first.facts.max_concurrency, first.facts.request_tokens) == (28309.62, 256)
    assert (first.facts.load_seconds, second.facts.load_seconds) == (1.299038, 1.673822)
    assert (first.facts.engine_seconds, second.facts.engine_seconds) == (16.28, 9.12)
    assert first.processes == (LogProcess("EngineCore", 4736), LogProcess("Worker", 4814))
    assert second.processes == (LogProcess("EngineCore", 4775), LogProcess("Worker", 4843))
    assert first.up and second.up and first.name == "vLLMHttpServer"
    assert replicas.trainer == TrainerFacts(
        total_steps=6, addresses=("192.0.2.2:36747", "192.0.2.2:34595"), finished=True
    )


@settings(max_examples=5)
@given(st.integers(300, 60_000))
def test_however_the_log_is_torn(size: int) -> None:
    replicas, _ = follow(size)
    whole, _ = follow(1 << 30)
    assert replicas.boots == whole.boots and replicas.trainer == whole.trainer
    assert replicas.take_events() == whole.take_events()


def test_sleeps_and_wake_ups_of_a_real_run() -> None:
    replicas, _ = follow(4096)
    events = replicas.take_events()
    assert replicas.take_events() == []
    first = [event for event in events if event.pid == EARLY][:5]
    at = time.mktime((2026, 11, 21, 0, 20, 18, 0, 0, -1))
    assert first == [
        EngineEvent(EARLY, "drained", at),
        EngineEvent(EARLY, "cache_reset", at),
        EngineEvent(EARLY, "slept", at, 0.025097, freed_gib=27.7),
        EngineEvent(EARLY, "woke", at + 1, 0.010702, ("weights",)),
        EngineEvent(EARLY, "woke", at + 2, 0.051222, ("kv_cache",)),
    ]
    slept = [event for event in events if event.kind == "slept"]
    # Ray folded like lines of both replicas into one
    assert len(slept) + sum(event.repeated for event in slept) >= 12
    assert all(event.freed_gib in (27.7, 27.72) for event in slept)


def test_every_cycle_of_a_run_that_folds_nothing() -> None:
    """15 steps on two H200s: each replica sleeps before the first one and after each."""
    replicas = ReplicaStages()
    with (RECORDINGS / "h200_run/trainer.log").open() as log:
        for line in log:
            replicas.feed(line, time.mktime((2026, 11, 21, 13, 8, 0, 0, 0, -1)))
    assert {pid: boot.stage for pid, boot in replicas.boots.items()} == {
        3597: "server up",
        3596: "server up",
    }
    assert all(boot.facts.max_concurrency == 28361.98 for boot in replicas.boots.values())
    assert replicas.trainer.addresses == ("192.0.2.2:36429", "192.0.2.2:43551")
    assert (replicas.trainer.total_steps, replicas.trainer.from_step) == (15, 0)
    events = replicas.take_events()
    for pid in replicas.boots:
        kinds = [(event.kind, event.tags) for event in events if event.pid == pid]
        assert kinds.count(("slept", ())) == 16
        assert kinds.count(("woke", ("weights",))) == kinds.count(("woke", ("kv_cache",))) == 16


def test_a_replica_on_a_gpu_of_its_own_sleeps_while_it_gets_weights() -> None:
    """4 steps with rollout_mode standalone on two H200s: before the first one and after each."""
    replicas = ReplicaStages()
    with (RECORDINGS / "h200_run/standalone.log").open() as log:
        for line in log:
            replicas.feed(line, time.mktime((2026, 11, 21, 21, 44, 0, 0, 0, -1)))
    ((pid, boot),) = replicas.boots.items()
    assert (pid, boot.stage, replicas.trainer.addresses) == (4191, "server up", ("192.0.2.2:43041",))
    kinds = [(event.kind, event.tags) for event in replicas.take_events()]
    assert kinds.count(("slept", ())) == kinds.count(("woke", ("kv_cache",))) == 5


def test_a_folded_line_counts_for_who_wrote_it() -> None:
    """simulated"""
    replicas = ReplicaStages()
    replicas.feed(
        "\x1b[36m(vLLMHttpServer pid=7, ip=10.0.0.2)\x1b[0m (EngineCore_DP0 pid=8) INFO 01-01 00:00:05 "
        "[abstract.py:327] It took 2.5 seconds to fall asleep.\x1b[32m [repeated 3x across cluster]\x1b[0m\n",
        time.mktime((2026, 12, 31, 23, 59, 50, 0, 0, -1)),
    )
    (event,) = replicas.take_events()
    assert (event.pid, event.seconds, event.repeated) == (7, 2.5, 3)
    assert event.at == time.mktime((2027, 1, 1, 0, 0, 5, 0, 0, -1)), "the year is the nearest one"
    boot = replicas.boots[7]
    assert boot.up and boot.ip == "10.0.0.2" and boot.processes == (LogProcess("EngineCore_DP0", 8),)


def test_bars_within_a_line_and_replicas_that_do_not_mix() -> None:
    """simulated"""
    replicas = ReplicaStages()
    a, b = "(vLLMHttpServer pid=1) (Worker_TP0 pid=11) ", "(vLLMHttpServer pid=2) "
    replicas.feed(a + "\rCapturing CUDA graphs (PIECEWISE):  24%|██▎| 12/51 [00:00<00:00]\r", NOW)
    boot = replicas.boots[1]
    assert (boot.stage, boot.progress) == ("CUDA graphs 12/51", 12 / 51), "before its line ends"
    replicas.feed(
        "Capturing CUDA graphs (PIECEWISE): 100%|███| 51/51\n" + b + "Resolved architecture: X\n", NOW
    )
    boots = replicas.boots
    assert boots[1].stage == "CUDA graphs 51/51" and boots[1].facts.graphs == (51, 51)
    assert boots[2].stage == "config" and not boots[2].up
    replicas.feed(
        a + "INFO x HTTP server started on port 4711\n(WorkerDict pid=9) non-default args: x\n", NOW
    )
    assert replicas.boots[1].up and replicas.boots[1].facts.port == 4711 and set(replicas.boots) == {1, 2}


def test_the_lines_of_the_cpu_engine() -> None:
    """simulated"""
    replicas = ReplicaStages()
    prefix = "(vLLMHttpServer pid=1) INFO 11-21 00:00:0{} [x.py:1] "
    lines = [
        "vLLMHttpServer, replica_rank: 1, node_rank: 0",
        "Loading weights took 0.50 seconds",
        "Application startup complete.",
        "Loading weights took 0.25 seconds (from the trainer)",
        "init engine (profile, create kv cache, warmup model) took 1.50 s",
    ]
    for second, text in enumerate(lines):
        replicas.feed(prefix.format(second) + text + "\n", NOW)
    facts = replicas.boots[1].facts
    assert (facts.rank, facts.load_seconds, facts.engine_seconds) == (1, 0.5, 1.5), "of its start"
    assert [(found.kind, found.seconds) for found in replicas.take_events()] == [("updated", 0.25)]


def test_a_watched_actor_is_a_replica_whatever_its_class() -> None:
    """simulated"""
    replicas = ReplicaStages()
    replicas.watch({5})
    replicas.feed("(pid=5) loading\n(Other pid=6) hello\n(CpuServer pid=5) Resolved architecture: X\n", NOW)
    assert {pid: (boot.name, boot.stage) for pid, boot in replicas.boots.items()} == {
        5: ("CpuServer", "config")
    }


def test_all_of_them_serve_once_verl_lists_their_addresses() -> None:
    """simulated"""
    replicas = ReplicaStages()
    lines = "(vLLMHttpServer pid=1) Resolved architecture: X\n(vLLMHttpServer pid=2) Using max model len 9\n"
    replicas.feed(lines + "(TaskRunnerV1 pid=3) LLMServerManager: ['h:1']\n", NOW)
    assert not any(boot.up for boot in replicas.boots.values()), "of another manager"
    replicas.feed("(TaskRunnerV1 pid=3) LLMServerManager: ['h:1', '[::1]:2']\n", NOW)
    assert replicas.trainer.addresses == ("h:1", "[::1]:2")
    assert all(boot.up for boot in replicas.boots.values())


def test_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "trainer.1.log"
    log = TrainerLog(path)
    log.poll(NOW)
    assert not log.replicas.boots
    data = VERL.read_bytes()
    with path.open("ab") as file:
        for at in range(0, len(data), 8191):
            file.write(data[at : at + 8191])
            file.flush()
            log.poll(NOW)
    assert log.facts.total_steps == 6
    whole, _ = follow(1 << 30)
    assert log.replicas.boots == whole.boots
    assert log.replicas.take_events() == whole.take_events()


def test_after_a_flood_no_line_is_pieced_together(tmp_path: Path) -> None:
    path = tmp_path / "trainer.1.log"
    path.write_bytes(b"(vLLMHttpServer pid=1) INFO 11-21 00:00:00 [x] ")
    log = TrainerLog(path)
    log.poll(NOW)
    with path.open("ab") as file:
        file.write(b"y" * (READ + 1000) + b" It took 3.0 seconds to fall asleep.\n(vLLMHttpServer pid=2) z\n")
    log.poll(NOW)
    assert log.replicas.take_events() == [] and set(log.replicas.boots) == {1, 2}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plain text (pid=1)", PrefixedLine((), "plain text (pid=1)")),
        ("(A pid=1) text", PrefixedLine((LogProcess("A", 1),), "text")),
        ("(pid=12, ip=10.0.0.1) text", PrefixedLine((LogProcess("", 12, "10.0.0.1"),), "text")),
        (
            "(vLLMHttpServer pid=1, ip=fd00::1) (EngineCore pid=2) (Worker pid=3) x",
            PrefixedLine(
                (
                    LogProcess("vLLMHttpServer", 1, "fd00::1"),
                    LogProcess("EngineCore", 2),
                    LogProcess("Worker", 3),
                ),
                "x",
            ),
        ),
        ("(A b pid=3) ", PrefixedLine((LogProcess("A b", 3),), "")),
        ("(raylet) text", PrefixedLine((), "(raylet) text")),
        ("(A pid=1) x" + FOLDED, PrefixedLine((LogProcess("A", 1),), "x", 5)),
        ("x [repeated 12x across cluster]\r", PrefixedLine((), "x", 12)),
        ("x [repeated 2x across cluster] y", PrefixedLine((), "x [repeated 2x across cluster] y")),
    ],
)
def test_prefixes(line: str, expected: PrefixedLine) -> None:
    assert parse_prefixes(line) == expected


@given(st.text(), st.lists(st.integers(0, 10**9), max_size=3))
def test_any_line_is_survived(text: str, pids: list[int]) -> None:
    parse_prefixes(text)
    prefix = "".join(f"(Name pid={pid}) " for pid in pids)
    line = parse_prefixes(prefix + text)
    assert [process.pid for process in line.processes][: len(pids)] == pids
    ReplicaStages().feed("(vLLMHttpServer pid=1) " + text + "\n" + text, NOW)
