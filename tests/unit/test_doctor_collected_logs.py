"""``doctor`` says the same of a log whatever stood before its lines where they were collected: containers, the journal,
MPI, and programs that keep the lines of others at level INFO."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.named_errors import NAMED
from liverl.offline.doctor.report import as_text

# Of a Ray worker without the first line of its traceback, and of a program itself: no row knows the second error
RAY = """\
(TaskRunner pid=5757) Filtering batch: 1/128 samples removed
(TaskRunner pid=5757) Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::W.generate() (pid=6249)
(TaskRunner pid=5757)   File "/srv/verl/verl/workers/rollout.py", line 383, in generate_sequences
(TaskRunner pid=5757)     outputs = self.inference_engine.generate(
(TaskRunner pid=5757)   File "/opt/lib/python3.12/site-packages/vllm/v1/engine/llm_engine.py", line 311, in step
(TaskRunner pid=5757)     assert outputs.scheduler_stats is not None
(TaskRunner pid=5757) AssertionError
"""
OWN = """\
loading the data
Traceback (most recent call last):
  File "/opt/lib/python3.12/site-packages/datasets/builder.py", line 70, in <module>
    read(path)
  File "/opt/lib/python3.12/site-packages/datasets/builder.py", line 64, in read
    raise LopsidedTable("row 7 is too long")
datasets.builder.LopsidedTable: row 7 is too long
"""
STAMP = "2026-11-20T10:00:{:02}.123456789Z"


def clock(n: int) -> str:
    return STAMP.format(n)


FORMS: dict[str, Callable[[int, str], str]] = {
    "kubectl --prefix": lambda _, line: f"[pod/trainer-0-abcde/main] {line}",
    "kubectl --prefix --timestamps": lambda n, line: f"[pod/trainer-0-abcde/main] {clock(n)} {line}",
    "journalctl": lambda n, line: f"Nov 20 10:00:{n:02} gpu07 vllm[8052]: {line}",
    "journalctl -o short-iso": lambda n, line: f"2026-11-20T10:00:{n:02}+00:00 gpu07 python3[8052]: {line}",
    "mpirun --tag-output": lambda _, line: f"[1,3]<stderr>:{line}",
    "Google's export": lambda n, line: json.dumps(
        {"textPayload": line, "timestamp": clock(n)[:19] + "Z", "severity": "ERROR"}
    ),
    "FastChat": lambda n, line: f"2026-11-20 10:00:{n:02} | ERROR | stderr | {line}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [RAY, OWN], ids=["of a worker", "of a program"])
def test_the_same_is_said_of_a_collected_log(tmp_path: Path, text: str, form: str) -> None:
    (tmp_path / "plain.log").write_text(text)
    (tmp_path / "collected.log").write_text(
        "".join(f"{FORMS[form](n, line)}\n" for n, line in enumerate(text.splitlines()))
    )
    plain = examine([tmp_path / "plain.log"]).verdict.cause
    collected = examine([tmp_path / "collected.log"]).verdict.cause
    assert plain is not None and collected is not None
    assert (collected.id, collected.title) == (plain.id, plain.title)


@pytest.mark.parametrize("text", [RAY, OWN], ids=["of a worker", "of a program"])
def test_what_a_runner_logs_at_level_info_is_an_error_all_the_same(tmp_path: Path, text: str) -> None:
    lines = (f"2026-11-20 10:00:{n:02},475 INFO runner: {line}\n" for n, line in enumerate(text.splitlines()))
    (tmp_path / "a.log").write_text("".join(lines))
    cause = examine([tmp_path / "a.log"]).verdict.cause
    assert cause is not None
    assert "AssertionError" in cause.title or "LopsidedTable: row 7 is too long" in cause.title


def info(*lines: str) -> str:
    return "".join(f"2026-11-20 10:00:{n:02},1 INFO runner: {line}\n" for n, line in enumerate(lines))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            info("begins", "worker said QuotaError: the volume is full", "bye"),
            "QuotaError: the volume is full",
        ),
        (
            "[2026-11-20 10:00:00,1][runner][INFO] - the worker said [ERROR]: nothing came\n",
            "[ERROR]: nothing came",
        ),
        (
            "begins\nin run (TaskRunner pid=7) RuntimeError: this loop runs already.\n",
            "RuntimeError: this loop",
        ),
    ],
    ids=["an exception", "a level", "without a level"],
)
def test_a_line_that_only_names_an_error_is_quoted(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.log").write_text(text)
    found = examine([tmp_path / "a.log"])
    (note,) = (one for one in found.notes if one.id == NAMED)
    assert found.verdict.explanations == ()
    assert said in note.evidence[0].text
    assert "something may have failed" in as_text(found)


@pytest.mark.parametrize(
    "behind",
    [
        'INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK\n',
        "step:7 - actor/loss:0.5\n",
        info(*["loading a shard of the weights of the model"] * 99),
    ],
    ids=["an answer", "a step", "much more"],
)
def test_a_named_error_is_nothing_where_the_log_went_on_well(tmp_path: Path, behind: str) -> None:
    (tmp_path / "a.log").write_text(info("worker said QuotaError: the volume is full") + behind)
    assert [one.id for one in examine([tmp_path / "a.log"]).notes if one.id == NAMED] == []


def test_zeros_in_the_middle_of_a_log_hide_nothing(tmp_path: Path) -> None:
    """A log that was emptied, or whose host went down, while its writer went on."""
    (tmp_path / "a.log").write_bytes(OWN.encode() + b"\0" * 445 + b"the end\n")
    cause = examine([tmp_path / "a.log"]).verdict.cause
    assert cause is not None and "LopsidedTable" in cause.title


def test_zeros_among_bytes_of_no_text_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(bytes(range(256)) * 40 + b"\0" * 445)
    assert not examine([tmp_path / "a.log"]).read


WHY = "Free memory on device (13.5/15.9 GiB) on startup is less than desired GPU memory utilization (0.9, 14.3 GiB)."
FAILED_START = f"""\
(APIServer pid=7) INFO 11-20 10:00:00 [api_server.py:1896] vLLM API server version 0.10.2
(EngineCore_DP0 pid=8) ERROR 11-20 10:00:09 [core.py:718] EngineCore failed to start.
(EngineCore_DP0 pid=8) ERROR 11-20 10:00:09 [core.py:718] Traceback (most recent call last):
(EngineCore_DP0 pid=8) ERROR 11-20 10:00:09 [core.py:718]   File "/opt/vllm/v1/engine/core.py", line 7, in f
(EngineCore_DP0 pid=8) ERROR 11-20 10:00:09 [core.py:718] ValueError: {WHY}
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
GOOD_START = """\
(APIServer pid=9) INFO 11-20 10:08:00 [api_server.py:1896] vLLM API server version 0.10.2
(APIServer pid=9) INFO:     Application startup complete.
"""


def test_a_start_that_a_later_one_made_good_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(FAILED_START + GOOD_START)
    (tmp_path / "b.log").write_text(FAILED_START)
    (tmp_path / "c.log").write_text(FAILED_START + GOOD_START + FAILED_START.replace("pid=7", "pid=11"))
    causes = [examine([tmp_path / name]).verdict.cause for name in ("a.log", "b.log", "c.log")]
    assert [one and one.id for one in causes] == [None, "gpu-memory-held", "gpu-memory-held"]


def test_a_server_that_was_asked_to_stop_while_it_started_did_not_hang(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "INFO 06-13 14:12:45 [api_server.py:1287] vLLM API server version 0.9.1\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/lib/python3.10/runpy.py", line 196, in _run_module_as_main\n'
        "    return _run_code(code, main_globals, None,\n"
        '  File "/opt/site-packages/vllm/registry.py", line 592, in _run_in_subprocess\n'
        "    returned = subprocess.run(_SUBPROCESS_COMMAND,\n"
        '  File "/opt/site-packages/vllm/entrypoints/openai/api_server.py", line 1307, in signal_handler\n'
        '    raise KeyboardInterrupt("terminated")\n'
        "KeyboardInterrupt: terminated\n"
    )
    cause = examine([tmp_path / "a.log"]).verdict.cause
    assert cause is not None
    assert cause.title == "SIGTERM ended vLLM's server while it started"
    assert "_run_in_subprocess" in cause.cause and "Ctrl-C" not in cause.cause


WARNED = """\
WARNING 06-25 16:32:09 [import_utils.py:408] Module deep_gemm was found but failed to import
WARNING 06-25 16:32:09 [import_utils.py:408] Traceback (most recent call last):
WARNING 06-25 16:32:09 [import_utils.py:408]   File "/opt/site-packages/vllm/import_utils.py", line 405, in try_import
WARNING 06-25 16:32:09 [import_utils.py:408]     import deep_gemm
WARNING 06-25 16:32:09 [import_utils.py:408] ImportError: libnvrtc.so.13: cannot open shared object file
"""


def test_an_exception_that_a_program_warned_of_and_did_without_is_no_cause(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(WARNED + info(*["evaluates a question of the set"] * 60))
    (tmp_path / "b.log").write_text(WARNED)
    assert examine([tmp_path / "a.log"]).verdict.cause is None
    assert examine([tmp_path / "b.log"]).verdict.cause is not None


def test_a_job_that_its_script_removed_again_does_not_go_on(tmp_path: Path) -> None:
    job = "job.batch/train-7 created\nwaits\nall tests ran\n{}job.batch{}train-7{} deleted\n"
    (tmp_path / "a.log").write_text(job.format("", "/", ""))
    (tmp_path / "b.log").write_text(job.format("", ' "', '"'))
    (tmp_path / "c.log").write_text("job.batch/train-7 created\nends\n")
    titles = [
        [one.title for one in examine([tmp_path / name]).verdict.explanations]
        for name in ("a.log", "b.log", "c.log")
    ]
    assert titles[:2] == [[], []]
    assert "only submitted the Kubernetes job job.batch/train-7" in titles[2][0]


KILLED = """\
[2026-08-01 22:25:30] server_args=ServerArgs(model_path='org/policy', port=30000, custom_sigquit_handler=None)
[2026-08-01 22:25:31] Load weight begin. avail mem=97.74 GB
{}/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 leaked \
semaphore objects to clean up at shutdown
  warnings.warn('resource_tracker: There appear to be %d '
"""


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("", ["ended-before-up"]),
        ("[2026-08-01 22:26:30] The server is fired up and ready to roll!\nINFO:     Shutting down\n", []),
        ("INFO:     Application startup complete.\n", []),
        ("[2026-08-01 22:26:30] SIGTERM received, drains\n", []),
    ],
    ids=["without a word", "in order", "after it served", "by a signal that it tells"],
)
def test_a_server_that_was_gone_before_it_was_up_was_ended(
    tmp_path: Path, between: str, found: list[str]
) -> None:
    (tmp_path / "a.log").write_text(KILLED.format(between))
    assert [one.id for one in examine([tmp_path / "a.log"]).verdict.explanations] == found


def test_a_program_that_is_no_server_may_leave_semaphores_behind(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(KILLED.format("").partition("\n")[2])
    assert examine([tmp_path / "a.log"]).verdict.explanations == ()
