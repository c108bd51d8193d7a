"""What scripts and launchers print of an end, and causes that others bring about or name better."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.finding import Verdict
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge
from liverl.causes.verdict.launchers import reported_signal
from liverl.logs.heads import parse_head
from liverl.logs.levels import own_level
from liverl.logs.moments import Moment

STEPS = "".join(
    f"(TaskRunner pid=7) step:{step} - actor/pg_loss:0.1 - timing_s/step:40\n" for step in range(30)
)
CHILD_FAILED = """Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
"""


def verdict(tmp_path: Path, text: str) -> Verdict:
    log = tmp_path / "train.log"
    log.write_text(text)
    return judge([read_log(log, str(log))])


def cause(tmp_path: Path, text: str) -> str:
    found = verdict(tmp_path, text).cause
    return "" if found is None else found.id


# --- scripts


def test_what_a_script_could_not_do_is_the_cause_where_its_log_ends(tmp_path: Path) -> None:
    assert cause(tmp_path, "+ ./run_grpo.sh\nbash: ./run_grpo.sh: Permission denied\n") == "shell-typed"


def test_a_launcher_reports_the_end_of_a_script(tmp_path: Path) -> None:
    text = "ERROR: Unable to locate a modulefile for 'cuda/12.4'\n" + "working\n" * 500
    assert cause(tmp_path, text) == ""
    assert (
        cause(tmp_path, text + "srun: error: n1: task 0: Exited with exit code 1\n") == "module-unknown-tcl"
    )


def test_a_script_that_went_on_has_no_cause_and_no_symptom(tmp_path: Path) -> None:
    found = verdict(tmp_path, "bash: ./probe.sh: No such file or directory\n" + STEPS)
    assert (found.cause, found.symptoms) == (None, ())


def test_an_error_of_the_program_wins_over_one_of_its_script(tmp_path: Path) -> None:
    text = "bash: ./probe.sh: No such file or directory\n"
    text += 'Traceback (most recent call last):\n  File "a.py", line 3, in main\n    check()\n'
    text += "ValueError: the share must be below 1\n"
    found = verdict(tmp_path, text)
    assert found.cause is not None
    assert "the share must be below 1" in found.cause.title
    assert "shell-typed" not in [one.id for one in found.symptoms]


# --- launchers


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("failed (exitcode: -9) local_rank: 0 (pid: 14750) of binary: /opt/python", 9),
        ("srun: error: worker1: task 0: Aborted", 6),
        ("srun: error: n[1-2]: tasks 0,4-5: Segmentation fault (core dumped)", 11),
        ("srun: error: n1: task 3: Bus error", 7),
        ("srun: error: n1: task 3: Killed", 9),
        ("  exitcode  : -11 (pid: 14750)", 11),
        ("['/usr/bin/python3', 'train.py'] exits with return code = -9", 9),
        ("Job entrypoint command failed with exit code -11, last available logs", 11),
        ("raylet [exit code=-6]", 6),
        ("command terminated with exit code 137", 9),
    ],
)
def test_a_launcher_reports_the_signal_that_ended_its_child(line: str, number: int) -> None:
    reported = reported_signal(f"first\n{line}\nlast")
    assert reported is not None
    assert reported == (number, line.strip())


@pytest.mark.parametrize(
    "line",
    [
        "failed (exitcode: 1) local_rank: 0",
        "exits with return code = 1",
        "srun: error: n1: task 3: Terminated",
        "srun: error: n1: task 3: Exited with exit code 1",
        "command terminated with exit code 1",
    ],
)
def test_an_exit_code_is_no_signal(line: str) -> None:
    assert reported_signal(line) is None


def test_a_child_that_was_killed_is_told_with_the_likeliest_reason(tmp_path: Path) -> None:
    line = "[2024-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['python3'] exits with return code = -9"
    found = verdict(tmp_path, "loss 0.1\n" * 40 + line + "\n").cause
    assert found is not None
    assert (found.id, "SIGKILL" in found.title) == ("killed", True)
    assert "memory" in found.fix


def test_a_child_that_torchrun_ended_itself_was_not_killed(tmp_path: Path) -> None:
    line = "E0521 15:43:03.620000 26 torch/elastic/api.py:869] failed (exitcode: -15) local_rank: 1 (pid: 4)"
    found = verdict(tmp_path, f"{line} of binary: /opt/python\n{CHILD_FAILED}").cause
    assert found is not None
    assert found.id == "unknown"


def test_a_childs_own_error_wins_over_the_signal_of_another(tmp_path: Path) -> None:
    error = "[rank0]: Traceback (most recent call last):\n"
    error += '[rank0]:   File "a.py", line 2, in f\n[rank0]: OSError: gone\n'
    line = "E0521 15:43:03.620000 26 torch/elastic/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 4)"
    found = verdict(tmp_path, f"{error}{line} of binary: /opt/python\n{CHILD_FAILED}").cause
    assert found is not None
    assert found.title.endswith("OSError: gone (a.py:2 in f)")


# --- causes that others bring about


CANCELLED = "slurmstepd: error: *** STEP 44.0 ON n1 CANCELLED AT 2025-09-11T11:01:21 ***\n"
OOM = "slurmstepd: error: Detected 1 oom_kill event in StepId=44.0. Some of the step tasks have been OOM Killed.\n"


@pytest.mark.parametrize("text", [OOM + CANCELLED, CANCELLED + OOM])
def test_a_cause_that_another_brings_about_gives_way(tmp_path: Path, text: str) -> None:
    found = verdict(tmp_path, text)
    assert found.cause is not None
    assert (found.cause.id, found.symptoms) == ("slurm-oom", ())


def test_such_a_cause_counts_where_nothing_else_is_wrong(tmp_path: Path) -> None:
    assert cause(tmp_path, CANCELLED) == "slurm-cancelled"


def test_a_general_row_is_no_symptom_beside_a_librarys(tmp_path: Path) -> None:
    frame = '  File "a.py", line 2, in load\n    x\n'
    text = f"[rank0]: Traceback (most recent call last):\n[rank0]:{frame}[rank0]: KeyError: 'param_groups'\n"
    found = verdict(
        tmp_path, text.replace("[rank0]:    x", "[rank0]:     x") + text.replace("rank0", "rank1")
    )
    assert found.cause is not None
    assert found.cause.id == "optimizer-state-missing"
    assert "key-error" not in [one.id for one in found.symptoms]


# --- what is only named, or handled


def test_a_general_error_that_a_warning_names_is_no_cause(tmp_path: Path) -> None:
    assert (
        cause(tmp_path, "WARNING 11-21 00:14:28 [cuda.py:45] ImportError: the extension is optional\n") == ""
    )


@pytest.mark.parametrize(
    "head",
    [
        "2023-12-07 18:22:13,968 ERROR web_protocol.py:403 -- Error handling request",
        "2023-12-07 18:22:13,968 ERROR base_events.py:1753 -- Task exception was never retrieved",
    ],
)
def test_what_a_server_handled_gives_way_to_what_ended(tmp_path: Path, head: str) -> None:
    text = (
        f'{head}\nTraceback (most recent call last):\n  File "web.py", line 4, in handle\n    response.status\n'
        "AttributeError: 'NoneType' object has no attribute 'status'\n"
    )
    end = (
        'Traceback (most recent call last):\n  File "train.py", line 8, in main\n    fit()\n'
        "ValueError: the table has no rows\n"
    )
    found = verdict(tmp_path, text + "2023-12-07 18:22:15,968 INFO main.py:4 -- training\n" + end).cause
    assert found is not None
    assert "the table has no rows" in found.title


# --- levels and times of their lines


@pytest.mark.parametrize(
    "line",
    [
        "run_grpo.sh: line 12: MODEL_PATH: unbound variable",
        "/var/spool/slurmd/job1/slurm_script: line 31: accelerate: command not found",
        "run.sh: line 9: /opt/venv/bin/activate: No such file or directory",
        "run.sh: line 31: syntax error near unexpected token `done'",
        "python: can't open file '/volume/t.py': [Errno 2] No such file or directory",
        "/usr/bin/python3: No module named verl.trainer",
        "/opt/bin/ray: /home/u/venv/bin/python: bad interpreter: No such file or directory",
        "EnvironmentNameNotFound: Could not find conda environment: verl",
        "2022-05-06 05:26:10,101\tERR scripts.py:896 -- raylet [exit code=1]",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "Status message: Job entrypoint command failed with exit code 2, last available logs",
        "Error parsing override 'data.train_files=[a'",
    ],
)
def test_errors_of_scripts_and_launchers_have_the_level_error(line: str) -> None:
    assert own_level(line) == "error"


@pytest.mark.parametrize(
    "line",
    [
        "+ echo line 12: MODEL_PATH is set",
        "read.txt: line 12: 3 files found",
        "python: opens file '/volume/t.py'",
        "Job 'raysubmit_1' succeeded",
    ],
)
def test_lines_like_them_have_no_level(line: str) -> None:
    assert own_level(line) is None


def test_the_kernels_stamp_with_a_months_name_is_a_time() -> None:
    head = parse_head(
        "[Fri Aug  1 10:09:30 2025] Out of memory: Killed process 650 (gcs_server) total-vm:1kB"
    )
    assert head.moment == Moment(2025, 8, 1, 10, 9, 30)
    assert parse_head("Nov 24 03:01:16 node7 kernel: [12.3] text").moment == Moment(0, 11, 24, 3, 1, 16)


def test_a_stamp_of_glog_with_two_numbers_is_a_head() -> None:
    head = parse_head("F0925 20:59:15.946403  2061  2061 plasma_store_provider.cc:43]  Check failed: ok")
    assert (head.text.strip(), head.level) == ("Check failed: ok", "error")


def test_what_a_data_loader_raises_again_is_the_workers_exception(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 9, in fit\n    for batch in loader:\n'
        "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        "  File \"data.py\", line 160, in build\n    row.pop(key)\nKeyError: 'prompt'\n\n"
    )
    found = verdict(tmp_path, text)
    assert found.cause is not None
    assert (found.cause.title, found.symptoms) == ("A table or row has no entry 'prompt' (KeyError)", ())
