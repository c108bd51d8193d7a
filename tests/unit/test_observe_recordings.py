"""Every recorded log of a service: the stage it reached, and how it ended. Expected values were read off the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.inputs.ended import Ended, why_ended
from liverl.observe.boot.stages import Stage, StageParser

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"

# name -> (kind, stage at its end, whether it became ready, why it failed; "" = it did not)
TABLE: dict[str, tuple[str, Stage | None, bool, str]] = {
    "vllm_startup.log": ("vllm", ("server up", None), True, ""),
    "vllm_startup_qwen3_coder.log": ("vllm", ("server up", None), True, ""),
    "h200/vllm0.log": ("vllm", ("server up", None), True, ""),
    "h200/vllm1.log": ("vllm", ("server up", None), True, ""),
    "vllm_sigterm_shutdown.log": ("vllm", ("server up", None), True, ""),
    "vllm_apiserver_sigkilled.log": ("vllm", ("server up", None), True, ""),
    "vllm_enginecore_killed.log": ("vllm", ("server up", None), True, "engine core exited unexpectedly"),
    # vLLM 0.24: its API server shut itself down five seconds later and exited 0
    "h200/vllm_enginecore_killed_exit0.log": (
        "vllm",
        ("server up", None),
        True,
        "engine core exited unexpectedly",
    ),
    "vllm_fail_no_parser.log": ("vllm", None, False, "requires --tool-call-parser"),
    "vllm_fail_bad_tool_parser.log": (
        "vllm",
        ("process", None),
        False,
        "invalid tool call parser: qwen_coder",
    ),
    "vllm_fail_bad_model_path.log": ("vllm", ("process", None), False, "Repo id must be in the form"),
    "vllm_fail_port_in_use.log": ("vllm", ("process", None), False, "[Errno 98] Address already in use"),
    "vllm_fail_tp_not_dividing.log": (
        "vllm",
        ("config", None),
        False,
        "attention heads (4) must be divisible",
    ),
    "vllm_fail_tp_numa_binding.log": ("vllm", ("engine", None), False, "Not enough allowed NUMA nodes"),
    "vllm_fail_kv_too_small.log": ("vllm", ("weights loaded", None), False, "To serve at least one request"),
    "litellm_startup.log": ("litellm", ("serving", None), True, ""),
    "h200/litellm.log": ("litellm", ("serving", None), True, ""),
    "litellm_backend_down.log": ("litellm", ("serving", None), True, ""),
    "litellm_sigterm_inflight.log": ("litellm", ("serving", None), True, ""),
    "litellm_w2.log": ("litellm", ("serving", None), True, ""),
    "litellm_workers2_parent_killed.log": ("litellm", ("serving", None), True, ""),
    "litellm_fail_no_config.log": ("litellm", ("importing", None), False, "Config file not found"),
    "litellm_fail_port_in_use.log": ("litellm", ("startup complete", None), False, "[Errno 98]"),
    "litellm_fail_port_in_use2.log": ("litellm", ("startup complete", None), False, "[Errno 98]"),
    "ray_start.log": ("ray", ("Ray up", None), True, ""),
    "ray_job.log": ("ray", None, False, ""),
    "h200/verl.log": ("trainer", ("training complete", 1.0), False, ""),
    "h200_run/trainer.log": ("trainer", ("training complete", 1.0), False, ""),
    # one replica on a GPU of its own, the trainer on the other one
    "h200_run/standalone.log": ("trainer", ("training complete", 1.0), False, ""),
    # the same without the module that bears the line at which verl 0.9.1 ends
    "h200_run/standalone_flush.log": (
        "trainer",
        ("ready to fit", None),
        False,
        "Logger._log() got an unexpected keyword argument 'flush'",
    ),
    # killed with SIGKILL: nothing in it says why
    "h200_run/replica_sigkilled.log": ("vllm", ("server up", None), True, ""),
    # its tool parser could read none of hundreds of calls, and logged a traceback for each
    "h200_run/replica_hermes.log": ("vllm", ("server up", None), True, ""),
    "verl_cpu/run6steps.stdout.log": ("trainer", ("training complete", 1.0), False, ""),
    "verl_cpu/run6steps.stderr.log": ("trainer", ("step 6/6", 1.0), False, ""),
    "verl_cpu/fail_hydra_grammar.log": ("trainer", None, False, "no viable alternative at input"),
    "verl_cpu/fail_hydra_unknown_key.log": ("trainer", None, False, "Could not override"),
    # attached to a cluster that wants a token
    "verl_cpu/fail_ray_no_token.log": (
        "trainer",
        ("connecting to Ray", None),
        False,
        "InvalidAuthToken: Authentication token is missing or incorrect",
    ),
    "verl_cpu/fail_no_gpu.stderr.log": (
        "trainer",
        ("2 steps planned", None),
        False,
        "Total available GPUs 0",
    ),
    "verl_cpu/fail_ray_oom_kill.stderr.log": (
        "trainer",
        ("starting replicas", None),
        False,
        "killed due to the node running low on memory",
    ),
    "verl_cpu/fail_server_actor_killed.stderr.log": (
        "trainer",
        ("step 0/2, rollouts: 4 running, 0 pending, 0 finished, 0 failed", 0.0),
        False,
        "The actor died unexpectedly before finishing this task",
    ),
    "verl_cpu/fail_zero_response_mask.stderr.log": (
        "trainer",
        ("step 0/2", 0.0),
        False,
        "response_mask must contain at least one valid token",
    ),
    "verl_cpu/fail_hydra_full_error.log": (
        "trainer",
        None,
        False,
        "Could not override 'trainer.max_ckpt_to_keep'",
    ),
    "verl_cpu/fail_ray_oom_low_threshold.log": (
        "trainer",
        None,
        False,
        "2 worker(s) were killed due to the node running low on memory",
    ),
    # the checkpoint was written by two ranks, and is read by one
    "verl_cpu/fail_resume_world_size.log": (
        "trainer",
        ("resuming from step 2", None),
        False,
        "model_world_size_1_rank_0.pt",
    ),
    "verl_cpu/wait_too_few_cpus.log": (
        "trainer",
        ("creating workers", None),
        False,
        "No available node types can fulfill resource request",
    ),
    # verl's fully asynchronous trainer: three versions, and none because a sample raised, which also exited 0
    "verl_cpu/fully_async.log": ("trainer", ("step 3/3, waiting for 2 samples", 1.0), False, ""),
    "verl_cpu/fully_async_sample_raises.log": (
        "trainer",
        ("step 0/3, waiting for 2 samples", 0.0),
        False,
        "Reward function is not implemented for data_source",
    ),
    # hung here until it was ended from outside: Ray had fewer CPUs than verl's actors ask for
    "verl_cpu/hang_num_cpus_too_small.stderr.log": ("trainer", ("Ray up", None), False, "SIGTERM received"),
}


# What somebody noted beside a run: no service's log.
NOTES = {"verl_cpu/discovery_race.log", "h200/ray_named_actors_poll.log"}


def test_every_recorded_log_is_here() -> None:
    found = {str(path.relative_to(RECORDINGS)) for path in RECORDINGS.rglob("*.log")}
    assert found - NOTES == set(TABLE)


@pytest.mark.parametrize("size", [0, 61])
@pytest.mark.parametrize("name", TABLE)
def test_end_of_a_recorded_log(name: str, size: int) -> None:
    """At once, and in lines as they would come; ``size`` lines at a time."""
    kind, stage, ready, cause = TABLE[name]
    text = (RECORDINGS / name).read_text(errors="replace")
    parser = StageParser(kind)
    lines = text.splitlines(keepends=True)
    for start in range(0, len(lines), size or len(lines)):
        parser.feed("".join(lines[start : start + (size or len(lines))]))
    assert (parser.stage, parser.done) == (stage, ready)
    found = why_ended(Ended("x", RECORDINGS / name))
    if cause:
        assert found is not None and any(cause in one.text for one in found.explanation.evidence)
    else:
        assert found is None, "nothing failed"


def test_engines_tell_their_figures() -> None:
    parser = StageParser("vllm")
    parser.feed((RECORDINGS / "h200/vllm0.log").read_text())
    facts = parser.facts
    assert (facts.version, facts.kv_tokens, facts.port) == ("0.24.0", 7213984, 8000)
    assert (facts.request_tokens, facts.max_concurrency) == (2048, 3522.45)
    assert (facts.load_seconds, facts.load_gib, facts.compile_seconds) == (1.537327, 0.03, 15.76)
    assert facts.graphs == (51, 51) and facts.graph_seconds == 2.0
    assert facts.engine_seconds == 34.01
    newer = StageParser("vllm")
    newer.feed((RECORDINGS / "vllm_startup.log").read_text())
    assert (newer.facts.kv_tokens, newer.facts.max_concurrency) == (2097152, 1024.0), "both on one line there"
    assert (newer.facts.engine_seconds, newer.facts.address) == (39.53, "http://127.0.0.1:8101")


def test_a_proxy_with_workers_serves_when_one_of_them_does() -> None:
    text = (RECORDINGS / "litellm_w2.log").read_text()
    parser = StageParser("litellm")
    begin = text.index("Application startup complete")
    parser.feed(text[:begin])
    assert "Uvicorn running on" in text[:begin] and parser.stage == ("models set", None) and not parser.done
    assert parser.feed(text[begin:]) == ("serving", None)


def test_what_happens_within_a_step() -> None:
    """simulated order; the lines are verl's"""
    parser = StageParser("trainer")
    parser.feed("Training Progress:  33%|███▎      | 2/6 [00:20<00:35,  8.80s/it]\n")
    beat = "INFO:2026-11-21 00:01:55,142:pending: 1, running: 4, finished: 2, failure: 0\n"
    assert parser.feed(beat) == ("step 2/6, rollouts: 4 running, 1 pending, 2 finished, 0 failed", 2 / 6)
    # the same bar drawn again
    drawn = parser.feed("Training Progress:  33%|███▎      | 2/6 [00:29<00:35,  8.80s/it]\n")
    assert drawn == ("step 2/6, rollouts: 4 running, 1 pending, 2 finished, 0 failed", 2 / 6)
    saving = parser.feed("INFO:2026-11-20 23:55:02,270:Saving checkpoint to /demo/ckpt/global_step_3\n")
    assert saving == ("step 2/6, saving the checkpoint of step 3", 2 / 6)
    assert parser.feed("Training Progress:  50%|█████     | 3/6 [00:30<00:35,  8.80s/it]\n") == (
        "step 3/6",
        0.5,
    )
    resumed = StageParser("trainer")
    assert resumed.feed("Resuming from /a b/global_step_2, setting global step to 2\n") == (
        "resuming from step 2",
        None,
    )
