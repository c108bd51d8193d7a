"""A word that something ended with exit code 0, and a trainer that stands still: whose end it is. The logs are as verl,
Ray, vLLM, LiteLLM and shells print them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from liverl.offline.doctor.examine import examine
from liverl.offline.doctor.report import as_text

NOW = time.time()
LAST = NOW - 5 * 3600.0  # the last step
ZERO = "script finished with exit code 0"


@pytest.fixture(autouse=True)
def at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ages of logs are those of the tables, however late a test runs."""
    monkeypatch.setattr(time, "time", lambda: NOW)


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S,000", time.localtime(at))


def steps(last: float) -> list[str]:
    """What a trainer prints of 20 steps of a minute, the last one at Unix time ``last``."""
    return [
        f"{stamp(last - 1200)} INFO worker.py:1843 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...",
        "(TaskRunner pid=5) Total training steps: 100",
        *(
            line
            for step in range(1, 21)
            for line in (
                f"(TaskRunner pid=5) step:{step} - actor/entropy:0.4 - actor/grad_norm:0.2 - actor/lr:1e-06 - "
                f"critic/score/mean:{0.3 + step / 500:.4f} - critic/score/max:1.0 - critic/score/min:0.0 - "
                "timing_s/step:60.0",
                f"(TaskRunner pid=5) {stamp(last - 1200 + step * 60)} INFO trainer.py:12 -- step {step} done",
            )
        ),
    ]


STEPS = steps(LAST)
POLLS = [
    f"(vLLMHttpServer pid=7) {stamp(LAST + 10 * n)} INFO:     10.0.0.1:4{n:04} - "
    '"GET /metrics HTTP/1.1" 200 OK'
    for n in range(1200)
]
TRAIN = [*STEPS, *POLLS]
STANDS = LAST + 12000.0 - NOW  # (negative) when the newest poll was written
SUBMITTED = [
    "Job submission server address: http://10.0.0.1:8265",
    "Job 'raysubmit_1' submitted successfully",
]
LITELLM = ["LiteLLM: Proxy initialized with Config", "INFO:     Application startup complete."]
VLLM = ["(APIServer pid=1) INFO 11-27 08:00:00 [api_server.py:1588] vLLM API server version 0.24.0"]

# name -> logs (lines, seconds from now at which the file was written), ids of what is told
TABLE: dict[str, tuple[dict[str, tuple[list[str], float]], list[str]]] = {
    "a submitter": (
        {"train.log": (TRAIN, STANDS), "submit.out": ([*SUBMITTED, ZERO], LAST - 1300 - NOW)},
        ["hangs"],
    ),
    "a submitter, both copied now": (
        {"train.log": (TRAIN, -5), "submit.out": ([*SUBMITTED, ZERO], -5)},
        ["hangs"],
    ),
    "a wrapper without a word of its job, both copied now": (
        {"train.log": (TRAIN, -5), "wrapper.log": (["launching", "training launched", ZERO], -5)},
        ["hangs"],
    ),
    "a wrapper that ended before the last step, and a trainer that only stops": (
        {"train.log": (STEPS, LAST - NOW), "wrapper.log": (["launching", ZERO], LAST - 1100 - NOW)},
        ["log-stops"],
    ),
    "a proxy that was ended later": (
        {"train.log": (TRAIN, STANDS), "litellm.log": ([*LITELLM, "process exited with code 0"], STANDS)},
        ["hangs"],
    ),
    "an engine that was ended later, and a trainer that only stops": (
        {"train.log": (STEPS, LAST - NOW), "vllm.log": ([*VLLM, "finished: exit code 0"], LAST + 60 - NOW)},
        ["log-stops"],
    ),
    "a script that put the trainer into the background": (
        {"train.log": (TRAIN, STANDS), "run.out": (["+ nohup python -m verl.trainer.main_ppo", ZERO], -60)},
        ["hangs"],
    ),
    "a copy job of the results, of another folder": (
        {"logs/train.log": (TRAIN, STANDS), "sync/rsync.log": (["sent 12 bytes", ZERO], -60)},
        ["hangs"],
    ),
    "a command of an agent in the trainer's own log": (
        {
            "train.log": (
                [
                    *STEPS,
                    "(AgentLoopWorker pid=9) the command finished with exit code 0",
                    f"{stamp(LAST)} INFO sandbox.py:9 -- command exited with code 0",
                    *POLLS[::40],
                ],
                STANDS,
            )
        },
        ["hangs"],
    ),
    "a script that waited for its trainer": (
        {"train.log": (STEPS, LAST - NOW), "run.out": (["launching", ZERO], LAST + 3 - NOW)},
        ["ended-early"],
    ),
    "the trainer's own script": ({"train.log": ([*STEPS, ZERO], LAST - NOW)}, ["ended-early"]),
    "healthy: all steps, and a submitter": (
        {
            "train.log": (
                [one.replace("steps: 100", "steps: 20") for one in TRAIN],
                STANDS,
            ),
            "submit.out": ([*SUBMITTED, ZERO], LAST - 1300 - NOW),
        },
        [],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_only_the_end_of_what_waited_for_the_trainer_counts(name: str, tmp_path: Path) -> None:
    logs, expected = TABLE[name]
    for file, (lines, age) in logs.items():
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (NOW + age, NOW + age))
    verdict = examine([tmp_path]).verdict
    told = [*([verdict.cause] if verdict.cause else []), *verdict.symptoms]
    assert [one.id for one in told] == expected, as_text(examine([tmp_path]))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("training exited with 1", "after step 20 of 100"),
        ("script finished with exit code 1", "after step 20 of 100"),
        ("exit code: 137", "137 is 128 + 9: SIGKILL"),
        ("train.sh: exit status 2", "after step 20 of 100"),
        ("Command exited with non-zero status 1", ""),
        ("make: *** [train] Error 1", ""),
        ("+ exit 1", ""),
        ("(AgentLoopWorker pid=9) the command finished with exit code 1", None),
        ("2026-11-27 10:00:00 INFO sandbox.py:9 -- command exited with code 1", None),
        ("pending: 3, running: 5, finished: 7", None),
        ("done 3 of 5, ended: 12", None),
    ],
)
def test_an_exit_code_in_the_log_is_no_end_without_an_error(
    line: str, words: str | None, tmp_path: Path
) -> None:
    log = tmp_path / "t.log"
    log.write_text("\n".join([*STEPS, line]) + "\n")
    os.utime(log, (LAST, LAST))
    ids = {one.id: one for one in examine([log]).verdict.symptoms}
    if words is None:
        assert list(ids) == ["log-stops"]
        return
    assert list(ids) == ["exit-without-error"], as_text(examine([log]))
    found = ids["exit-without-error"]
    assert words in found.title + found.cause and line in found.evidence[0].text
    log.write_text("\n".join([*STEPS, line]).replace("steps: 100", "steps: 20") + "\n")
    assert "All 20 steps are done" in examine([log]).verdict.symptoms[0].title
    log.write_text("\n".join([line, *STEPS]) + "\n")
    os.utime(log, (LAST, LAST))
    assert [one.id for one in examine([log]).verdict.symptoms] == ["log-stops"], "before the training"


def test_a_command_that_failed_in_a_log_that_grows_is_no_end(tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    more = ["[task 7] tests exited with code 1", "[task 7] next turn"]
    log.write_text("\n".join([*steps(NOW - 65), *more]) + "\n")
    os.utime(log, (NOW - 5, NOW - 5))
    assert examine([log]).verdict.symptoms == ()
    log.write_text("\n".join([*STEPS, *more]) + "\n")
    os.utime(log, (NOW - 90, NOW - 90))
    assert [one.id for one in examine([log]).verdict.symptoms] == ["exit-without-error"]


@pytest.mark.parametrize(
    ("lines", "noted"),
    [
        ([f"step {n} | loss 0.5 | lr 1e-6" for n in range(1, 40)], True),
        ([f"step {n} | loss 0.5 | lr 1e-6" for n in range(1, 40)] + ["training completed"], False),
        (STEPS, False),
        (["all is well"], False),
    ],
)
def test_it_is_noted_that_nobody_knows_whether_a_training_was_complete(
    lines: list[str], noted: bool, tmp_path: Path
) -> None:
    log = tmp_path / "t.log"
    log.write_text("\n".join(lines) + "\n")
    os.utime(log, (LAST, LAST))
    found = examine([log])
    assert [one.id for one in found.notes] == (["end-not-told"] if noted else [])
    os.utime(log, (NOW, NOW))
    assert examine([log]).notes == (), "it may go on"
