"""What logs tell about the steps of a training, and who owes how many. The lines are as programs print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liverl.causes.quiet import told as module
from liverl.causes.quiet.owed import Owed, Passed, owed
from liverl.causes.quiet.reasons import left_trainer
from liverl.causes.quiet.told import Listening, Submitted, Told, joined, read_told

DATA = Path(__file__).parents[1] / "data" / "recordings"
STEP = "(TaskRunner pid=4) step:{n} - training/global_step:{n} - critic/score/mean:0.5\n"


def heard(text: str) -> Told:
    listening = Listening()
    listening.hear(text.encode(), 0)
    return listening.told


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            "\x1b[36m(TaskRunner pid=1)\x1b[0m Total training steps: 20\n",
            {"total": 20, "made": 0, "step": None},
        ),
        ("Total training steps: 1,000,\n", {"total": 1000}),
        (
            "Training Progress:  15%|#5  | 3/20 [00:01<00:09]\rTraining Progress: 20%|##  | 4/20 [00:02<00:08]\n",
            {"bar": 20, "step": 4, "made": 1},
        ),
        (
            "Train steps:  50%|#####     | 5/10 [00:01<00:01,  1.0it/s]\n",
            {"counted": 10, "step": 5, "bar": None},
        ),
        ("Map:  50%|#####     | 500/1000 [00:01<00:01, 500 examples/s]\n", {"counted": None, "step": None}),
        ("Step 2/5 : RUN pip install x\n", {"counted": None}),
        ("step 2/3: prepare the data\n", {"counted": None}),
        ("eval step 2/3 loss 0.4\n", {"counted": None, "step": None}),
        ("capturing CUDA graphs: step 3/4\n", {"counted": None}),
        (" iteration      100/    1000 | lm loss: 1.2E+00\n", {"counted": 1000, "step": 100}),
        ("epoch 1 step 20/100 loss 0.3\n", {"counted": None}),
        ("===== Step 12/200 =====\n", {"counted": 200, "step": 12}),
        ("===== Step 1/3: install =====\n", {"counted": None}),
        (
            "\rEpisode [1/1]:  30%|###   | 30/100 [09:00<21:00, 30.1s/it]",
            {"counted": 100, "step": 30, "rate": 30.1},
        ),
        (
            "  0%|          | 0/1000 [00:00<?, ?it/s]\r 40%|####      | 400/1000 [06:40<10:00,  1.00s/it]\n"
            "{'loss': 0.5, 'grad_norm': 0.3, 'epoch': 0.4}\n 50%|#####     | 5/10 [00:01<00:01, 5.0it/s]\n",
            {"counted": 1000, "step": 400, "made": 400, "trains": True},
        ),
        (" 40%|####      | 400/1000 [06:40<10:00,  1.00s/it]\n", {"counted": None, "step": None}),
        ("Training Progress:  50%|##  | 5/10 [00:01<00:01,  2.0it/s]\n", {"bar": 10, "rate": 0.5}),
        ("trial 3 of step 7: 80 tokens\n", {"step": None}),
        ("step 7 | 80 tokens\n", {"step": 7}),
        ("Final validation metrics: {}\n", {"finished": True, "closed": "Final validation metrics: {}"}),
        ("training has completed\n" + STEP.format(n=1), {"finished": False, "closed": ""}),
        ("process exited with code 0\n", {"closed": "process exited with code 0", "failed": ""}),
        ("process exited with code 10\n", {"closed": "", "failed": "process exited with code 10"}),
        ("(AgentLoopWorker pid=3) ls exited with code 0\n", {"closed": "", "failed": ""}),
        ("10:00:00 INFO sh.py: ls exited with code 0\n", {"closed": "", "failed": ""}),
        ("exit code 1\nexit code 2\nexit code 0\n", {"closed": "exit code 0", "failed": "exit code 2"}),
        (STEP.format(n=1) + STEP.format(n=2) + STEP.format(n=2), {"step": 2, "made": 2}),
        ("step:0 - val-core/acc:0.5\nstep:4 - val-core/acc:0.5\n", {"step": None, "made": 0}),
        (
            "Resuming from /c/global_step_60, setting global step to 60\n",
            {"began": 60, "step": 60, "made": 0},
        ),
        ("Training from scratch\n", {"began": 0, "made": 0}),
        ("  'total_training_steps': -1,\n", {"configured": None}),
        (
            "  'total_training_steps': 6,\n  'total_epochs': 2,\n  'val_only': False,\n",
            {"configured": 6, "epochs": 2, "val_only": False},
        ),
        ("+ python -m verl.trainer.main_ppo trainer.total_training_steps=7\n", {"asked": 7}),
        ("total_training_steps: null\n", {"configured": None}),
        ("Size of train dataloader: 25, Size of val dataloader: 1\n", {"batches": 25}),
        ("nohup: ignoring input\n", {"background": "nohup: ignoring input"}),
        ("[1] 4711\n", {"background": ""}),  # of an interactive shell only; a list's element looks alike
        ("wandb: View run at https://x\n", {"closed": ""}),
        ("wandb: Run summary:\n" + STEP.format(n=1), {"closed": ""}),
        (STEP.format(n=1) + "real\t3m2.1s\n", {"closed": "real\t3m2.1s"}),
        ("hello\n", {"made": None, "trains": False}),
        # a trainer that begins anew has its own steps
        (
            "Total training steps: 5\n" + STEP.format(n=3) + "Total training steps: 9\n",
            {"total": 9, "step": None, "made": 0},
        ),
    ],
)
def test_what_a_line_tells(text: str, facts: dict[str, Any]) -> None:
    found = heard(text)
    assert {name: getattr(found, name) for name in facts} == facts


def test_lines_that_tell_nothing_are_passed_over_but_not_those_that_differ() -> None:
    """Lines that differ in their digits only are taken for one kind, unless a digit decides."""
    lines = [f"trial {n} of step {n % 7} took {n} tokens\n" for n in range(2000)]
    found = heard("".join([*lines, "job 7 exit code 3\n", "job 8 exit code 0\n", *lines, STEP.format(n=5)]))
    assert (found.step, found.made) == (5, 1)
    assert (
        heard("".join([*lines, "job 7 exit code 3\n", "job 8 exit code 0\n"])).closed == "job 8 exit code 0"
    )


@pytest.mark.parametrize("padding", ["", "of a program with many arguments: " * 20])
@pytest.mark.parametrize(
    ("silent", "telling"),
    [
        ("the trainer exited with 1234 in all", "the trainer exited with 7 in all"),
        ("exit code 1.5 was never given", "exit code 15 was given"),
        ("exit code 10%", "exit code 10"),
        ("finished with status 0/8", "finished with status 0 8"),
        ("exit code 00", "exit code 10"),
        ("exit code 0.0", "exit code 2 0"),
        ("make: *** [Makefile:7: train] Error 0", "make: *** [Makefile:7: train] Error 2"),
    ],
)
def test_an_exit_code_is_heard_however_often_a_line_like_it_told_nothing(
    silent: str, telling: str, padding: str
) -> None:
    listening = Listening()
    silent, telling = f"{padding}{silent}\n", f"{padding}{telling}\n"
    listening.hear(silent.encode() * 3, 0)
    assert not (listening.told.failed or listening.told.closed)
    listening.hear(telling.encode(), 3 * len(silent))
    assert listening.told.failed or listening.told.closed


@pytest.mark.parametrize("end", ["make: *** [train] Error {}", "run.sh exited with {}"])
@pytest.mark.parametrize("padding", ["", "of a program with many arguments: " * 20])
def test_the_second_failure_of_a_training_that_was_begun_anew_is_heard(end: str, padding: str) -> None:
    first, second = (f"{padding}{end.format(code)}\n" for code in (1, 2))
    listening = Listening()
    listening.hear(f"step 1/9\nstep 2/9\n{first}".encode(), 0)
    begin = listening.told.read_to
    listening.hear(f"step 3/9\nstep 4/9\n{second}".encode(), begin)
    told = listening.told
    assert told.failed == second.strip()[: module.SHOWN]
    assert told.failed_at == begin + len("step 3/9\nstep 4/9\n")


def test_lines_with_exit_codes_that_tell_nothing_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[bytes] = []
    tells = Listening._tells

    def counted(self: Listening, block: Any, number: int, *, only_bar: bool = False) -> bool:
        looked_at.append(block.part(number))
        return tells(self, block, number, only_bar=only_bar)

    monkeypatch.setattr(Listening, "_tells", counted)
    listening = Listening()
    for padding in ("", " with many arguments" * 40):
        for number in range(100):
            listening.hear(f"the exit of worker {number:03d}, of unknown status{padding}\n".encode(), 0)
    assert len(looked_at) == 2
    for _ in range(9):
        listening.hear(b"loading verl.trainer.config\n", 0)
    assert listening.told.trains and len(looked_at) == 4, "once that it trains is known, it is no news"


def test_jobs_are_those_that_the_script_itself_has_submitted() -> None:
    text = (
        "Job submission server address: http://h:1\nJob 'a' submitted successfully\nJob 'a' succeeded\n"
        "Job 'b' submitted successfully\nSubmitted batch job 7\njob.batch/train created\n"
        "(AgentLoopWorker pid=3) Job 'model-wrote-this' submitted successfully\n"
    )
    assert heard(text).jobs == (
        Submitted("ray", "a", "http://h:1", "succeeded"),
        Submitted("ray", "b", "http://h:1"),
        Submitted("slurm", "7"),
        Submitted("kubernetes", "job.batch/train"),
    )


def test_a_fact_has_its_place_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "t.log"
    log.write_text("begin\nTotal training steps: 20\n" + STEP.format(n=1))
    found = read_told(log, shown="shown.log")
    proof = found.proofs["total"]
    assert (proof.text, proof.log, proof.offset) == ("Total training steps: 20", "shown.log", 6)
    assert found.progress_at == log.stat().st_size - 1 and found.proofs["step"].offset == 31


def test_a_long_log_is_read_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4000)
    monkeypatch.setattr(module, "HEAD", 1000)
    log = tmp_path / "t.log"
    log.write_text(
        "Total training steps: 20\n" + "x" * 79 + "\n" * 1 + ("y" * 79 + "\n") * 500 + STEP.format(n=19)
    )
    found = read_told(log)
    assert (found.total, found.step) == (20, 19)
    assert read_told(log, 25).total is None, "what stands before the start is another process's"


def test_a_log_in_small_blocks_tells_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "h200" / "verl.log"
    whole = read_told(path)
    monkeypatch.setattr(module, "BLOCK", 777)
    monkeypatch.setattr(module, "LONGEST", 1 << 16)
    assert read_told(path) == whole
    assert (whole.total, whole.bar, whole.configured, whole.step, whole.epochs) == (6, 6, 6, 6, 1)


def test_several_logs_of_one_script() -> None:
    one, other = (
        heard("Total training steps: 20\n" + STEP.format(n=3)),
        heard("Setting global step to 0\n" + STEP.format(n=5)),
    )
    both = joined([one, other])
    assert (both.total, both.step, both.began) == (20, 5, 0)
    assert joined([heard("Total training steps: 20\n")]).made == 0, "0 is a fact"


PASSED = Passed(20, "training.total_steps (my.yaml:4)")


@pytest.mark.parametrize(
    ("told", "passed", "expected"),
    [
        (Told(), None, None),
        (Told(), PASSED, Owed(20, PASSED.source)),
        (Told(total=20), PASSED, Owed(20, "its log")),
        (Told(total=10, bar=10), PASSED, Owed(10, "its log", ((20, PASSED.source),))),
        (Told(total=900, bar=10), None, Owed(10, "its progress bar", ((900, "its log"),))),
        (
            Told(counted=10, asked=30),
            PASSED,
            Owed(10, "its progress bar", ((30, "the command line in its log"), (20, PASSED.source))),
        ),
        (
            Told(configured=10, asked=30),
            None,
            Owed(10, "the configuration in its log", ((30, "the command line in its log"),)),
        ),
    ],
)
def test_who_says_what_is_owed(told: Told, passed: Passed | None, expected: Owed | None) -> None:
    assert owed(told, passed) == expected


@pytest.mark.parametrize(
    ("left", "found"),
    [
        ((), ""),
        (
            (
                "raylet",
                "gcs_server",
                "python3.12 log_monitor.py",
                "tee",
                "sleep",
                "ray::IDLE",
                "litellm",
                "vllm",
            ),
            "",
        ),
        (("raylet", "python3 -m verl.trainer.main_ppo"), "python3 -m verl.trainer.main_ppo"),
        (("bash train.sh",), "bash train.sh"),
    ],
)
def test_which_program_left_behind_may_train(left: tuple[str, ...], found: str) -> None:
    assert left_trainer(left) == found
