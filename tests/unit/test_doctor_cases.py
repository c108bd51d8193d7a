"""``doctor`` on logs of real programs: failed ones with the line that is the cause, and healthy ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.verdict_logs import VerdictLog, failed_logs

from liverl.causes.finding import Exit
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.offline.doctor.examine import Examination, examine

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = DATA / "recordings"
ON_GPUS = DATA / "gpu_logs"  # vLLM 0.24.0, verl 0.9.1 and torch 2.11.0 on an H100
FAILED = failed_logs()


def explained(found: Examination) -> bool:
    cause = found.verdict.cause
    return cause is not None and cause.id != "unknown" and bool(cause.cause and cause.fix)


def test_a_page_of_metrics_is_no_log_and_has_nothing_wrong() -> None:
    found = examine([RECORDINGS / "vllm_metrics.txt"])
    assert (found.verdict.cause, found.verdict.symptoms, found.read) == (None, (), False)


def test_a_healthy_line_that_speaks_of_failures_is_none(tmp_path: Path) -> None:
    log, wrong = tmp_path / "run.log", {}
    for line in (DATA / "healthy" / "lines.txt").read_text().splitlines():
        for text in (line, f"(TaskRunner pid=12) {line}", f"vllm-1  | {line}", f"[rank0]: {line}"):
            log.write_text(f"starting\n{text}\nINFO:     Application startup complete.\n")
            one = examine([log]).verdict
            log.write_text(text + "\n")
            alone = examine([log]).verdict
            found = [e.id for v in (one, alone) for e in (v.cause, *v.symptoms) if e is not None]
            if found:
                wrong[text] = found
    assert wrong == {}


def test_an_engine_that_was_asked_to_stop_has_not_failed() -> None:
    found = examine([ON_GPUS / "sigterm.log"]).verdict
    assert found.cause is None
    assert [s.title for s in found.symptoms] == ["A request asks for the model nope, which is not served"]


def test_an_engine_that_was_killed_while_it_started_left_no_error_of_its_own() -> None:
    """EngineCore got SIGKILL after it had allocated its KV cache."""
    found = examine([ON_GPUS / "engine_killed_at_start.log"]).verdict
    assert found.cause is not None and found.cause.id == "unknown"
    assert "EngineCore process ended while it started, without an error of its own" in found.cause.title
    assert "something killed it" in found.cause.fix
    assert found.guesses[0].id == "guess-memory"


def test_an_engine_that_was_killed_under_verl_is_found_although_its_server_goes_on() -> None:
    """EngineCore got SIGKILL in a rollout. Its server has no more requests then, and reports that it is idle."""
    log = ON_GPUS / "engine_killed_under_verl.log"
    assert "Running: 0 reqs" in log.read_text().splitlines()[-1]
    found = examine([log]).verdict
    assert found.cause is not None
    assert "EngineCore process ended without an error of its own" in found.cause.title
    assert "engine core exited unexpectedly" in found.cause.evidence[0].text
    assert "dmesg" in found.cause.fix


def test_a_failed_request_is_never_why_a_process_ended() -> None:
    log = RECORDINGS / "vllm_apiserver_sigkilled.log"
    found = examine([log]).verdict
    assert (found.cause, [s.id for s in found.symptoms]) == (None, ["vllm-unknown-model-asked"])
    killed = judge([read_log(log, "x")], [Exit("replica-0", "x", None, 9)])
    assert killed.cause is not None
    assert (killed.cause.id, killed.cause.title) == (
        "killed",
        "replica-0 was killed by SIGKILL; its log says nothing about it",
    )


@pytest.mark.parametrize("case", [c for c in FAILED if c.path.name[:2] in ("18", "56", "58")])
def test_requests_that_all_fail_are_what_is_wrong_with_a_server(case: VerdictLog, tmp_path: Path) -> None:
    assert explained(examine([case.path]))
    ended = judge([read_log(case.path, "x")], [Exit("replica-0", "x", None, 11)])
    assert ended.cause is not None and ended.cause.id == "killed"
    answer = b'INFO:     127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    answered = tmp_path / "answered.log"
    answered.write_bytes(case.path.read_bytes() + answer)
    found = examine([answered]).verdict
    assert (found.cause, bool(found.symptoms)) == (None, True)


UMBRELLA = (
    b"ERROR 07-15 15:38:47 [core.py:1240] EngineCore failed to start.\n"
    b"RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    b"ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
)
FLOOD = b"".join(b"node1:77:99 [0] NCCL INFO Channel %02d/24 : 0 1 2 3\n" % (n % 24) for n in range(30000))


@pytest.mark.parametrize("place", ["first", "last", "between", "flood"])
@pytest.mark.parametrize(
    "case", [c for c in FAILED if "oom-at-load" in c.path.name or "disk-full" in c.path.name]
)
def test_what_only_reports_a_failure_never_hides_it(case: VerdictLog, place: str, tmp_path: Path) -> None:
    log = tmp_path / case.path.name
    content = case.path.read_bytes()
    cut = content.index(b"\n", len(content) // 3) + 1
    log.write_bytes(
        {
            "first": UMBRELLA + content,
            "last": content + UMBRELLA,
            "between": content[:cut] + UMBRELLA.split(b"\n")[0] + b"\n" + content[cut:] + UMBRELLA,
            "flood": content + FLOOD + UMBRELLA,
        }[place]
    )
    assert len(FLOOD) > 1.2 * (1 << 20)
    cause = examine([log]).verdict.cause
    assert cause is not None
    assert any(line in cause.evidence[0].text for line in case.lines), (cause.id, cause.evidence[0].text)


def test_logs_of_one_run_give_one_verdict(tmp_path: Path) -> None:
    case = next(c for c in FAILED if "oom-at-load" in c.path.name)
    shutil.copy(case.path, tmp_path / "replica-0.log")
    (tmp_path / "trainer.log").write_bytes(UMBRELLA)
    shutil.copy(RECORDINGS / "litellm_startup.log", tmp_path / "litellm.log")
    cause = examine([tmp_path]).verdict.cause
    assert cause is not None
    assert cause.evidence[0].log == str(tmp_path / "replica-0.log")


def test_an_error_that_was_handled_is_no_cause(tmp_path: Path) -> None:
    case = next(c for c in FAILED if "oom-at-load" in c.path.name)
    content = case.path.read_bytes()
    healthy = b'(EngineCore pid=9) INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    step = b"(TaskRunner pid=8413) step:7 - actor/loss:0.1 - timing_s/step:92.1\n"
    for after in (step, step + healthy * 30):
        log = tmp_path / "run.log"
        log.write_bytes(content + after)
        assert examine([log]).verdict.cause is None


def test_an_error_after_which_a_server_answered_on_is_no_cause(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    error = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB\n"
    log.write_bytes(error)
    assert examine([log]).verdict.cause is not None
    log.write_bytes(error + b'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * 30)
    assert examine([log]).verdict.cause is None


# Under Ray, as slime and verl report it (slime issue 795), with the frames of Megatron-LM's check.
NOT_FINITE = """\
Traceback (most recent call last):
  File "/opt/verl/verl/trainer/main_ppo.py", line 42, in main
    run_ppo(config)
ray.exceptions.RayTaskError(RuntimeError): ray::WorkerDict.update() (pid=2407, ip=172.17.0.2, actor_id=f1b740)
  File "/opt/Megatron-LM/megatron/core/distributed/finalize_model_grads.py", line 113, in finalize_model_grads
    model_chunk.finish_grad_sync()
  File "/opt/Megatron-LM/megatron/core/rerun_state_machine.py", line 545, in validate_result
    raise RuntimeError(full_message)
{error}
"""
NAN_GRADIENT = (
    "message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication "
    "collective'"
)
OF_LOSS = "message='found Inf in local forward loss calculation'"


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (
            f"RuntimeError: Rank 2, node a, device 2, iteration -1: Unexpected result nan ({NAN_GRADIENT})",
            "NaN",
        ),
        (f"RuntimeError: Rank 2, node a, device 2, iteration 7: Unexpected result inf ({OF_LOSS})", "Inf"),
        (
            "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #3 invocation #2 "
            f"({NAN_GRADIENT})",
            "NaN",
        ),
        (
            "AssertionError: Rank 11: found NaN in local grad norm in backward pass before data-parallel "
            "communication collective. Device: 3, node: a",
            "NaN",
        ),
    ],
    ids=["gradient", "loss", "to be computed again", "of older versions"],
)
@pytest.mark.parametrize("reported", [NOT_FINITE, "{error}\n"], ids=["by Ray", "alone"])
def test_megatron_s_refusal_of_numbers_is_the_cause_and_ray_is_not_suspected(
    reported: str, error: str, what: str, tmp_path: Path
) -> None:
    log = tmp_path / "trainer.log"
    log.write_text(reported.format(error=error))
    found = examine([log]).verdict
    assert found.cause is not None and found.cause.title.startswith(f"Megatron stopped: {what} in the ")
    assert found.guesses == () and "ray" not in found.cause.fix
    log.write_text(reported.format(error=error).replace("in local ", "in a local "))
    other = examine([log]).verdict.cause
    assert other is None or not other.id.startswith("megatron-")
