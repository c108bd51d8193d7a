"""What ``doctor`` says of trainings that ended without an error before their last step. The logs are as verl, Ray and
shells print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.offline.doctor.examine import examine

STEP = "(TaskRunner pid=4) step:{n} - training/global_step:{n} - critic/score/mean:0.5\n"
RESUMED = (
    "(TaskRunner pid=4) Size of train dataloader: 25, Size of val dataloader: 1\n"
    "(TaskRunner pid=4) Total training steps: 100\n(TaskRunner pid=4) Setting global step to 20\n"
    + "".join(STEP.format(n=n) for n in range(21, 26))
)
BOUNDARY = (
    "(TaskRunner pid=7) Setting global step to 60\n(TaskRunner pid=7) Total training steps: 120\n"
    "(TaskRunner pid=7) Training Progress:  50%|#####     | 60/120 [00:00<?, ?it/s]\n"
)
SUBMITTED = (
    "Job submission server address: http://10.0.0.1:8265\nJob 'raysubmit_1' submitted successfully\n"
    "+ nohup python -m verl.trainer.main_ppo trainer.total_training_steps=500\nstarted, log: train.log\n"
    "Job 'raysubmit_1' succeeded\n"
)
BAR = (
    "(TaskRunner pid=7) Total training steps: 20\n"
    "(TaskRunner pid=7) Training Progress:  90%|#########  | {n}/20 [09:00<00:30, 30.0s/it]\n"
    "(TaskRunner pid=7) 'Final validation metrics: None'\n"
)
TRAINER = "nohup: ignoring input\n(TaskRunner pid=2) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,\n"


@pytest.mark.parametrize(
    ("logs", "title", "words"),
    [
        (
            {"t.log": f"{RESUMED}train script finished with exit code 0\n"},
            "training ended without an error after step 25 of 100",
            "Set trainer.total_epochs to at least 4",
        ),
        (
            {"t.log": f"{BOUNDARY}wandb: Run summary:\n"},
            "training ended without an error at step 60 of 120, where it had resumed",
            "Raise trainer.total_epochs by one",
        ),
        (
            {"submit.out": SUBMITTED, "train.log": TRAINER},
            "training ended without an error; 0 of 500 steps were seen",
            "end the script with `wait`",
        ),
        (
            {"submit.out": SUBMITTED.split("+ nohup")[0]},
            "its script only submitted the Ray job raysubmit_1, and ended",
            "remove --no-wait",
        ),
        # of a log that only stops it is not known whether its training goes on
        ({"t.log": RESUMED}, "", ""),
        ({"t.log": BOUNDARY + "wandb: View run at https://wandb.ai/x\n"}, "", ""),
        # verl's bar does not show the last step, in which it validates
        ({"t.log": BAR.format(n=19)}, "", ""),
        ({"t.log": BAR.format(n=18)}, "training ended without an error after step 18 of 20", "Read the end"),
        # all steps
        ({"t.log": RESUMED.replace("steps: 100", "steps: 25") + "wandb: Run summary:\n"}, "", ""),
        # one training has ended well, and what lies beside it is another one's
        (
            {"a.log": RESUMED.replace("steps: 100", "steps: 25"), "b.log": f"{RESUMED}wandb: finished\n"},
            "training ended without an error after step 25 of 100",
            "total_epochs",
        ),
    ],
)
def test_a_training_that_ended_early(logs: dict[str, str], title: str, words: str, tmp_path: Path) -> None:
    for name, text in logs.items():
        (tmp_path / name).write_text(text)
    verdict = examine([tmp_path]).verdict
    assert verdict.cause is None
    found = verdict.symptoms
    assert [one.title for one in found] == ([title] if title else [])
    if title:
        assert words in found[0].fix and found[0].cause and found[0].evidence[0].offset is not None


@pytest.mark.parametrize(
    "line",
    [
        "trainer exit code: 0",
        "process exited: 0",
        "exit status 0",
        "[2026-11-27 10:00:00] finished: exit code 0",
        "[2025-01-02 03:04:05] finished: exit code 0",  # what follows without a stamp is not as old as that
        "wandb: Find logs at: ./wandb/run-1/logs",
        "wandb: \U0001f680 View run calm-sea-3 at: https://wandb.ai/x",
        "training completed",
    ],
)
def test_each_word_of_an_end_counts(line: str, tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    log.write_text(f"{RESUMED}{line}\n", encoding="utf-8")
    title = "training ended without an error after step 25 of 100"
    assert [one.title for one in examine([log]).verdict.symptoms] == [title]
    log.write_text(f"{RESUMED}{line}\n{STEP.format(n=26)}", encoding="utf-8")
    assert examine([log]).verdict.symptoms == (), "it goes on behind that word"
    log.write_text(f"{RESUMED}{line}\n".replace("steps: 100", "steps: 25"), encoding="utf-8")
    assert examine([log]).verdict.symptoms == (), "all its steps were made"


def test_an_error_says_more_than_the_steps_that_are_left(tmp_path: Path) -> None:
    error = 'Traceback (most recent call last):\n  File "/w/t.py", line 3, in f\nRuntimeError: it broke\n'
    (tmp_path / "t.log").write_text(f"{RESUMED}{error}wandb: Run summary:\n")
    verdict = examine([tmp_path / "t.log"]).verdict
    assert verdict.cause is not None and "it broke" in verdict.cause.title
