"""``checkpoints ls``, ``prune``, ``back`` and ``export``, with real runs."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kit.cli import MAIN, run_cli
from kit.injected import begins_with
from kit.made_checkpoints import cut, embedded, fsdp, megatron, merger
from kit.runs import make_run, toy
from kit.waiting import wait_until
from msgspec.structs import replace

from liverl.daemon.takeover import read_plan
from liverl.observe.checkpoints import LATEST
from liverl.offline.checkpoints import list_checkpoints, prune
from liverl.plan.spec import RestartPolicy

NEVER = RestartPolicy(mode="never")
SCORE = "val-core/task/reward/mean@1"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    trainer = toy("trainer", "exit", "0", kind="trainer", ends_run=True, restart=NEVER)
    run = make_run(tmp_path_factory.mktemp("template"), [trainer], name="done")
    try:
        run.start()
        run.result()
        yield run.run_dir
    finally:
        run.end()


@pytest.fixture
def ended(template: Path, tmp_path: Path) -> Path:
    """A run that has ended, with the checkpoints 1 to 6: 2 is the best as 3, 4 is cut off, 6 is not confirmed."""
    run_dir = tmp_path / "tests" / "ended"
    shutil.copytree(template, run_dir, symlinks=True)
    fill(run_dir)
    return run_dir


def fill(run_dir: Path) -> None:
    base = run_dir / "checkpoints"
    base.mkdir(exist_ok=True)
    for step in range(1, 7):
        fsdp(base, step)
    cut(base / "global_step_4" / "actor" / "model_world_size_2_rank_1.pt")
    (base / LATEST).write_text("5")
    scores = {1: 0.25, 2: 0.75, 3: 0.75, 4: 0.9, 5: 0.5}
    lines = [
        json.dumps({"step": step, "data": {"critic/score/mean": 0.1, SCORE: s}}) for step, s in scores.items()
    ]
    (run_dir / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def asked(*args: object, code: int = 0) -> dict[str, Any]:
    done = run_cli("checkpoints", *args, "--json")
    assert done.returncode == code, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def steps_of(run_dir: Path) -> list[int]:
    return sorted(
        int(name.rpartition("_")[2]) for name in os.listdir(run_dir / "checkpoints") if name[0] == "g"
    )


def test_ls_says_what_each_one_is(ended: Path) -> None:
    told = asked("ls", ended)
    rows = {row["step"]: row for row in told["rows"]}
    assert [rows[step]["state"] for step in range(1, 7)] == [
        "complete",
        "complete",
        "complete",
        "incomplete",
        "complete",
        "unknown",
    ]
    assert [step for step, row in rows.items() if row["newest"]] == [5]
    assert [step for step, row in rows.items() if row["best"]] == [2], "4 has a better score, and is cut off"
    assert (told["score"], told["latest"], told["live"]) == (SCORE, 5, "")
    shown = run_cli("checkpoints", "ls", ended).stdout
    assert "complete, best" in shown and "model_world_size_2_rank_1.pt is cut off" in shown
    assert "6 checkpoints" in shown and f"best: step 2, validation 0.75 ({SCORE})" in shown


@pytest.mark.parametrize(("keep", "left"), [(1, [2, 5, 6]), (2, [2, 3, 5, 6]), (9, [1, 2, 3, 5, 6])])
def test_prune_leaves_what_somebody_needs(ended: Path, keep: int, left: list[int]) -> None:
    """4 goes always: it is broken."""
    before = asked("prune", ended, "--keep", keep)
    assert not before["removed"] and steps_of(ended) == [1, 2, 3, 4, 5, 6]
    told = asked("prune", ended, "--keep", keep, "--yes")
    assert steps_of(ended) == left and told["removed"] and not told["failed"]
    assert [row["step"] for row in told["rows"]] == [row["step"] for row in before["rows"]]
    assert told["bytes"] == sum(row["bytes"] for row in before["rows"]) > 0
    kept = {row["step"]: row["keeps"] for row in told["kept"]}
    assert "from which the trainer resumes" in kept[5] and "best by validation" in kept[2]
    assert "not confirmed" in kept[6]
    assert not asked("prune", ended, "--keep", keep, "--yes")["rows"], "a second time nothing goes"


def test_exported_ones_stay(ended: Path) -> None:
    record = [{"step": 1, "target": "/models/first", "at": 1.0}]
    (ended / "exports.json").write_text(json.dumps(record))
    told = asked("prune", ended, "--keep", 1, "--yes")
    assert steps_of(ended) == [1, 2, 5, 6]
    assert "exported to /models/first" in {row["keeps"] for row in told["kept"]}
    (ended / "exports.json").write_text("[{")
    done = run_cli("checkpoints", "prune", ended, "--keep", "1", "--yes")
    assert done.returncode == 1 and "exports.json cannot be read" in done.stderr
    assert steps_of(ended) == [1, 2, 5, 6]


def test_nothing_goes_while_the_best_is_not_known(ended: Path) -> None:
    metrics = ended / "metrics.jsonl"
    metrics.unlink()
    metrics.mkdir()
    done = run_cli("checkpoints", "prune", ended, "--keep", "1", "--yes")
    assert done.returncode == 1 and "which one is the best is not known" in done.stderr, done
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]
    metrics.rmdir()
    told = asked("ls", ended)
    assert not told["best_unknown"] and told["no_score"] == "its metrics have neither validation nor reward"


def test_without_validation_the_training_reward_names_the_best_and_says_so(ended: Path) -> None:
    """Of the three steps up to a checkpoint: a single lucky step (1) is not the best."""
    rewards = {1: 0.6, 2: 0.3, 3: 0.9, 4: 0.9, 5: 0.2}
    lines = [json.dumps({"step": step, "data": {"critic/score/mean": r}}) for step, r in rewards.items()]
    (ended / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    told = asked("ls", ended)
    rows = {row["step"]: row for row in told["rows"]}
    assert [step for step, row in rows.items() if row["best"]] == [5], "4 would be, and is cut off"
    assert rows[5]["reward"] == pytest.approx(2.0 / 3) and rows[5]["validation"] is None
    assert (told["score"], told["no_score"]) == ("critic/score/mean", "its metrics have no validation")
    words = "best: step 5, by training reward: mean 0.6667 of the 3 steps up to it, as its metrics have no validation"
    assert words in run_cli("checkpoints", "ls", ended).stdout
    assert words in " ".join(run_cli("disk", ended).stdout.split()), "wrapped"
    (ended / "attempt_001").mkdir(exist_ok=True)
    (ended / "attempt_001" / "report.md").write_text("# Report\n")
    report = run_cli("report", ended).stdout
    assert words in report and "- complete: 1, 2, 3, 5" in report


def test_a_live_run_loses_nothing_that_may_be_being_written(tmp_path: Path) -> None:
    trainer = toy("trainer", "sleep", kind="trainer", ends_run=True, restart=NEVER)
    run = make_run(tmp_path, [trainer], name="live")
    run.start()
    try:
        fill(run.run_dir)
        half = run.run_dir / "checkpoints" / "global_step_7" / "actor"
        half.mkdir(parents=True)
        told = asked("prune", run.run_dir, "--keep", 1, "--yes")
        assert steps_of(run.run_dir) == [2, 5, 6, 7]
        kept = {row["step"]: row["keeps"] for row in told["kept"]}
        assert kept[7].startswith("it may be being written: it is running")
        back = run_cli("checkpoints", "back", run.run_dir, "2")
        assert back.returncode == 1 and "tests/live: it is running (pid " in back.stderr, back
    finally:
        run.end()
    asked("prune", run.run_dir, "--keep", 1, "--yes")
    assert steps_of(run.run_dir) == [2, 5, 6], "once it has ended, an unfinished one is of no use"


def test_an_attempt_that_begins_meanwhile_is_waited_for_by_nobody(ended: Path) -> None:
    shown = list_checkpoints(ended)
    with (ended / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        freed, failed = prune(ended, 1, shown)
    assert freed == 0 and "has just begun" in failed[0].why
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]


def test_only_what_was_shown_goes(ended: Path) -> None:
    shown = list_checkpoints(ended)
    for step in (7, 8):
        fsdp(ended / "checkpoints", step)
    prune(ended, 1, shown)
    assert steps_of(ended) == [2, 5, 6, 7, 8], "5 was the newest when it was shown, and 7 was not shown"


# The first file of a checkpoint is removed, and then nothing more: the process stays in the middle.
STAYS = """
import os, time
unlink = os.unlink
def stays(*args, **kwargs):
    unlink(*args, **kwargs)
    if os.path.exists({half!r}):
        open({reached!r}, "w").close()
        time.sleep(600)
os.unlink = stays
"""


def test_a_prune_that_was_killed_leaves_no_half_checkpoint(ended: Path, tmp_path: Path) -> None:
    """It gets another name before anything of it goes; the next prune removes the rest."""
    half, reached = ended / "checkpoints" / ".global_step_1.removed", tmp_path / "reached"
    env = begins_with(tmp_path / "site", STAYS.format(half=str(half), reached=str(reached)))
    process = subprocess.Popen(
        [*MAIN, "checkpoints", "prune", str(ended), "--keep", "1", "--yes"],
        stdout=subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    try:
        wait_until(lambda: reached.exists() or process.poll() is not None, what="the first removed file")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert 1 not in steps_of(ended)
    left = asked("ls", ended)["half_removed"]
    assert left == [str(half)], "it was killed in the middle"
    asked("prune", ended, "--keep", 1, "--yes")
    assert not asked("ls", ended)["half_removed"] and steps_of(ended) == [2, 5, 6]


def test_it_asks_in_a_terminal(ended: Path) -> None:
    for answer, left in (("n\n", [1, 2, 3, 4, 5, 6]), ("y\n", [2, 5, 6])):
        main, inner = pty.openpty()
        with os.fdopen(main, "r+b", buffering=0) as terminal:
            process = subprocess.Popen(
                [*MAIN, "checkpoints", "prune", str(ended), "--keep", "1"],
                stdin=inner,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            os.close(inner)
            terminal.write(answer.encode())
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and b"[y/N]" in err, err
        assert steps_of(ended) == left, out


def test_files_of_another_user_stay(ended: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    os.chown(ended / "checkpoints" / "global_step_1" / "data.pt", 12345, -1)
    told = asked("prune", ended, "--keep", 1, "--yes", code=1)
    assert "belongs to" in told["failed"][0]["why"] and steps_of(ended) == [1, 2, 5, 6]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("ls", "{run}"), 1, "no checkpoint was written yet"),
        (("export", "{run}"), 1, "no checkpoint was written yet"),
        (("prune", "{run}"), 2, "--keep"),
        (("prune", "{run}", "--keep", "0"), 2, "--keep"),
        (("export", "{run}", "last"), 2, "'last' is no step"),
    ],
)
def test_what_cannot_be_done_is_said(template: Path, args: tuple[str, ...], code: int, words: str) -> None:
    done = run_cli("checkpoints", *(arg.format(run=template) for arg in args))
    assert done.returncode == code and words in done.stderr, done
    assert "Traceback" not in done.stderr


# --- export ---------------------------------------------------------------------------------------------


def test_export_runs_verls_merger_for_this_checkpoint(ended: Path, tmp_path: Path) -> None:
    python = merger(tmp_path)
    printed = run_cli("checkpoints", "export", ended, "3", "--python", python, "--print")
    actor, target = ended / "checkpoints/global_step_3/actor", ended / "exports/global_step_3"
    assert printed.stdout.split() == [
        str(python), "-m", "verl.model_merger", "merge", "--backend", "fsdp",
        "--local_dir", str(actor), "--target_dir", str(target),
    ]  # fmt: skip
    assert not target.exists() and not (ended / "exports.json").exists(), "it only prints"
    told = asked("export", ended, "3", "--python", python)
    assert told["done"] and sorted(os.listdir(target)) == ["config.json", "model.safetensors"]
    assert os.listdir(target.parent) == ["global_step_3"]
    asked("prune", ended, "--keep", 1, "--yes")
    assert steps_of(ended) == [2, 3, 5, 6]
    again = run_cli("checkpoints", "export", ended, "3", "--python", python)
    assert again.returncode == 1 and "exists; name a new folder with --to" in again.stderr
    newest = asked("export", ended, "--python", python, "--to", tmp_path / "model")
    assert newest["step"] == 5 and (tmp_path / "model" / "config.json").exists()


@pytest.mark.parametrize(
    ("then", "written", "words"),
    [
        (
            "raise SystemExit('the shards do not fit')",
            4,
            "failed (exit 1):\n  Loading 2 FSDP shards\n  the shards do",
        ),
        ("os.kill(os.getpid(), 9)", 4, "was ended by SIGKILL"),
        ("", 2, "reports no error, but"),
    ],
)
def test_a_merger_that_fails_leaves_nothing(
    ended: Path, tmp_path: Path, then: str, written: int, words: str
) -> None:
    done = run_cli("checkpoints", "export", ended, "3", "--python", merger(tmp_path, then, written))
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert os.listdir(ended / "exports") == [] and not (ended / "exports.json").exists()


def _tied(run_dir: Path) -> None:
    config = run_dir / "checkpoints/global_step_8/actor/model/huggingface/config.json"
    config.write_text('{"text_config": {"tie_word_embeddings": true}, "auto_map": {}}')


CASES: dict[str, tuple[Callable[[Path], object], str, list[str], str]] = {
    "cut off": (lambda run: None, "4", [], "is cut off"),
    "no such step": (
        lambda run: None,
        "12",
        [],
        "there is no checkpoint of step 12; there are: 1, 2, 3, 4, 5, 6",
    ),
    "embedded": (lambda run: embedded(run / "checkpoints", 8), "8", [], "there is no model to export"),
    "no environment": (lambda run: None, "3", [], "name its interpreter with --python"),
    "no such interpreter": (
        lambda run: None,
        "3",
        ["--python", "/none/python"],
        "there is no program /none/python",
    ),
    "no description of the model": (
        lambda run: (run / "checkpoints/global_step_3/actor/huggingface/config.json").unlink(),
        "3",
        ["--python", sys.executable],
        "huggingface/config.json, which describes the model, cannot be read",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_exported_is_refused(ended: Path, case: str) -> None:
    prepare, step, more, words = CASES[case]
    prepare(ended)
    done = run_cli("checkpoints", "export", ended, step, *more)
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert not (ended / "exports").exists()


def test_megatrons_command(ended: Path) -> None:
    megatron(ended / "checkpoints", 8)
    _tied(ended)
    told = asked("export", ended, "global_step_8", "--python", sys.executable, "--print")
    assert told["command"][4:6] == ["--backend", "megatron"]
    assert told["command"][-2:] == ["--tie-word-embedding", "--trust-remote-code"]
    assert any("auto_map" in note for note in told["notes"]) and not told["done"]


def test_weights_that_are_merged_already_are_named(ended: Path, tmp_path: Path) -> None:
    """With hf_model in save_contents verl writes the model beside its shards."""
    model = ended / "checkpoints/global_step_3/actor/huggingface"
    asked("export", ended, "2", "--python", merger(tmp_path))
    shutil.copy(ended / "exports/global_step_2/model.safetensors", model)
    told = asked("export", ended, "3")
    assert (told["target"], told["command"], told["done"]) == (str(model), [], True)
    asked("prune", ended, "--keep", 1, "--yes")
    assert steps_of(ended) == [2, 3, 5, 6]


def aside_of(base: Path, number: int = 1) -> list[str]:
    return sorted(name for name in os.listdir(base / f"set_aside_{number:03d}") if name.startswith("global"))


def test_a_run_goes_back_to_a_checkpoint_and_the_later_ones_are_set_aside(ended: Path) -> None:
    base = ended / "checkpoints"
    told = asked("back", ended, "global_step_3")
    assert (told["step"], told["later"], told["set_aside"]) == (3, [4, 5, 6], str(base / "set_aside_001"))
    assert told["next"].startswith("liverl-tui up --resume tests/ended")
    assert (steps_of(ended), (base / LATEST).read_text()) == ([1, 2, 3], "3")
    assert aside_of(base) == ["global_step_4", "global_step_5", "global_step_6"]
    rows = {row["step"]: row for row in asked("ls", ended)["rows"]}
    assert list(rows) == [1, 2, 3] and rows[3]["newest"]
    again = run_cli("checkpoints", "back", ended, "1")
    assert again.returncode == 0, again
    assert "set_aside_002: 2 checkpoints (step 2, 3)" in again.stdout
    assert "the next attempt goes on from step 1: liverl-tui up --resume tests/ended" in again.stdout
    last = run_cli("checkpoints", "back", ended, "1")
    assert last.returncode == 0 and "no later checkpoint was there" in last.stdout


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        ("9", 1, "tests/ended has no checkpoint of step 9; it has: 1, 2, 3, 5, 6"),
        ("4", 1, "the checkpoint of step 4 is not complete: "),
        ("two", 2, "STEP: 'two' is no step: a whole number, as in global_step_12"),
    ],
)
def test_what_it_cannot_go_back_to_is_refused(ended: Path, step: str, code: int, words: str) -> None:
    done = run_cli("checkpoints", "back", ended, step)
    assert done.returncode == code and words in done.stderr, done
    assert (steps_of(ended), (ended / "checkpoints" / LATEST).read_text()) == ([1, 2, 3, 4, 5, 6], "5")


def test_a_run_that_begins_meanwhile_keeps_its_checkpoints(ended: Path) -> None:
    with (ended / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run_cli("checkpoints", "back", ended, "2")
    assert done.returncode == 1, done
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]


def test_going_back_is_undone_with_the_mark_as_it_was(ended: Path) -> None:
    base = ended / "checkpoints"
    asked("back", ended, "3")
    planned = asked("back", ended, "--undo")
    assert (planned["undone"], planned["step"], planned["later"]) == (False, 5, [4, 5, 6])
    assert steps_of(ended) == [1, 2, 3], "--json alone moves nothing"
    nobody = run_cli("checkpoints", "back", ended, "--undo")
    assert nobody.returncode == 0 and "nothing was moved: there is no terminal to ask" in nobody.stdout
    assert steps_of(ended) == [1, 2, 3]
    assert asked("back", ended, "--undo", "--yes")["undone"]
    assert (steps_of(ended), (base / LATEST).read_text()) == ([1, 2, 3, 4, 5, 6], "5")
    assert not (base / "set_aside_001").exists()
    again = run_cli("checkpoints", "back", ended, "--undo", "--yes")
    assert again.returncode == 1 and "nothing is set aside in" in again.stderr, again


def test_an_undo_is_asked_for_in_a_terminal(ended: Path) -> None:
    asked("back", ended, "3")
    assert "moved back" not in typed(ended, "n") and steps_of(ended) == [1, 2, 3]
    assert "moved back: 3 checkpoints" in typed(ended, "y") and steps_of(ended) == [1, 2, 3, 4, 5, 6]


def typed(run_dir: Path, answer: str) -> str:
    """What an undo prints to a user who answers so."""
    user, terminal = pty.openpty()
    try:
        os.write(user, f"{answer}\n".encode())
        command = [*MAIN, "checkpoints", "back", str(run_dir), "--undo"]
        done = subprocess.run(
            command, check=False, stdin=terminal, capture_output=True, text=True, timeout=120
        )
    finally:
        os.close(user)
        os.close(terminal)
    assert done.returncode == 0 and "Move them back into" in done.stderr, done
    return done.stdout


def test_what_was_set_aside_comes_back_folder_by_folder(ended: Path) -> None:
    asked("back", ended, "3")
    asked("back", ended, "1")
    assert asked("back", ended, "--undo", "--yes")["later"] == [2, 3], "the newest first"
    assert asked("back", ended, "set_aside_001", "--undo", "--yes")["step"] == 5
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]


def test_one_that_was_set_aside_without_a_record_comes_back(ended: Path) -> None:
    """As all that older versions have set aside: the newest whole one is the one to go on from."""
    base = ended / "checkpoints"
    asked("back", ended, "3")
    (base / "set_aside_001" / "went_back.json").unlink()
    assert asked("back", ended, "--undo", "--yes")["step"] == 6
    assert ((base / LATEST).read_text(), steps_of(ended)) == ("6", [1, 2, 3, 4, 5, 6])


def test_an_undo_that_was_interrupted_is_finished(ended: Path) -> None:
    base = ended / "checkpoints"
    asked("back", ended, "3")
    (base / "set_aside_001" / "global_step_4").rename(base / "global_step_4")
    assert asked("back", ended, "--undo", "--yes")["later"] == [5, 6]
    assert ((base / LATEST).read_text(), steps_of(ended)) == ("5", [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("newer", [5, 7])
def test_checkpoints_of_two_attempts_are_not_mixed(ended: Path, newer: int) -> None:
    """Of the same name, or a later one: the command that it names brings them back, and keeps the new ones."""
    asked("back", ended, "3")
    fsdp(ended / "checkpoints", newer)
    done = run_cli("checkpoints", "back", ended, "--undo", "--yes")
    words = f"checkpoints of step {newer} have come since it went back"
    assert done.returncode == 1 and words in done.stderr, done
    assert f"checkpoints back {ended} set_aside_001 --undo" in done.stderr
    assert steps_of(ended) == [1, 2, 3, newer]
    asked("back", ended, "3")
    assert asked("back", ended, "set_aside_001", "--undo", "--yes")["step"] == 5
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]
    assert aside_of(ended / "checkpoints", 2) == [f"global_step_{newer}"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--undo", "4"), 2, "--undo takes no step, found '4'"),
        (("--undo", "set_aside_009"), 1, "has no set_aside_009 in"),
        (("3", "--yes"), 2, "--yes is for --undo"),
        ((), 2, "give STEP, to which to go back, or --undo"),
    ],
)
def test_what_cannot_be_undone_is_refused(
    ended: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    asked("back", ended, "3")
    done = run_cli("checkpoints", "back", ended, *arguments)
    assert done.returncode == code and words in done.stderr, done
    assert steps_of(ended) == [1, 2, 3]


def test_a_live_run_goes_neither_back_nor_forth(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, [toy("trainer", "sleep", kind="trainer", ends_run=True, restart=NEVER)], name="live"
    )
    fill(run.run_dir)
    aside = run.run_dir / "checkpoints" / "set_aside_001"
    aside.mkdir()
    (run.run_dir / "checkpoints" / "global_step_6").rename(aside / "global_step_6")
    run.start()
    try:
        run.until("trainer", "ready")
        for arguments in (("2",), ("--undo", "--yes")):
            done = run_cli("checkpoints", "back", run.run_dir, *arguments)
            assert done.returncode == 1 and "its checkpoints are moved only once it has ended" in done.stderr
            assert "it is running (pid " in done.stderr
        assert steps_of(run.run_dir) == [1, 2, 3, 4, 5]
    finally:
        run.end()


def test_an_attempt_that_begins_meanwhile_keeps_its_checkpoints_where_they_are(ended: Path) -> None:
    asked("back", ended, "3")
    with (ended / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run_cli("checkpoints", "back", ended, "--undo", "--yes")
    assert done.returncode == 1 and steps_of(ended) == [1, 2, 3], done


def test_what_was_set_aside_is_removed_when_it_is_asked_for(ended: Path) -> None:
    base = ended / "checkpoints"
    asked("back", ended, "3")
    (listed,) = asked("ls", ended)["set_aside"]
    assert (listed["steps"], listed["back_to"]) == ([4, 5, 6], 3) and listed["bytes"] > 0
    shown = run_cli("checkpoints", "ls", ended).stdout
    assert "set_aside_001" in shown and "--undo" in shown and "--set-aside" in shown
    assert asked("prune", ended, "--keep", 9, "--yes")["rows"] == [], "--keep alone leaves them"
    before = asked("prune", ended, "--set-aside")
    assert [row["step"] for row in before["rows"]] == [4, 5, 6] and not before["removed"]
    assert aside_of(base) == ["global_step_4", "global_step_5", "global_step_6"]
    text = run_cli("checkpoints", "prune", ended, "--set-aside").stdout
    assert "its validation 0.9 is higher than that of every other one (0.75 at most)" in text
    told = asked("prune", ended, "--set-aside", "--yes")
    assert told["bytes"] == sum(row["bytes"] for row in before["rows"]) > 0 and not told["failed"]
    assert not (base / "set_aside_001").exists() and steps_of(ended) == [1, 2, 3]
    none = run_cli("checkpoints", "prune", ended, "--set-aside", "--yes")
    assert none.returncode == 0 and "nothing to remove: nothing is set aside" in none.stdout


def test_both_go_with_both_options_and_an_exported_one_stays(ended: Path) -> None:
    (ended / "exports.json").write_text(json.dumps([{"step": 5, "target": "/models/5", "at": 1.0}]))
    asked("back", ended, "3")
    told = asked("prune", ended, "--set-aside", "--keep", 1, "--yes")
    assert [row["step"] for row in told["rows"]] == [1, 4, 6] and steps_of(ended) == [2, 3]
    assert aside_of(ended / "checkpoints") == ["global_step_5"]
    assert "exported to /models/5" in {row["keeps"] for row in told["kept"]}


def test_nothing_is_removed_of_a_run_that_was_not_named(ended: Path) -> None:
    """The newest run that has ended is another one tomorrow: a script would remove its checkpoints."""
    root = ended.parents[1]
    done = run_cli("checkpoints", "prune", "--keep", "1", "--yes", "--run-root", root)
    assert done.returncode == 2 and f"checkpoints prune {ended} --keep 1 --yes" in done.stderr, done
    assert steps_of(ended) == [1, 2, 3, 4, 5, 6]
    listed = run_cli("checkpoints", "prune", "--keep", "1", "--run-root", root)
    assert listed.returncode == 0 and "nothing was removed" in listed.stdout, listed
    neither = run_cli("checkpoints", "prune", ended, "--yes")
    assert neither.returncode == 2 and "give --keep N, --set-aside or both" in neither.stderr


def test_the_disk_names_what_each_command_removes(ended: Path) -> None:
    """One measure: what ``disk`` announces is what ``prune`` says that it removes, and then has removed."""
    asked("back", ended, "3")
    shown = json.loads(run_cli("disk", ended, "--json").stdout)
    rows = {row["kind"]: row for row in shown["rows"]}
    for kind, options in (("checkpoints", ("--keep", "1")), ("checkpoints set aside", ("--set-aside",))):
        going = asked("prune", ended, *options)["rows"]
        assert rows[kind]["goes"] == sum(row["bytes"] for row in going) > 0
        assert rows[kind]["goes"] < rows[kind]["bytes"]
        assert rows[kind]["may_go"] == f"liverl-tui checkpoints prune {ended} {' '.join(options)}"
        assert asked("prune", ended, *options, "--yes")["bytes"] == rows[kind]["goes"]
    after = {row["kind"]: row for row in json.loads(run_cli("disk", ended, "--json").stdout)["rows"]}
    assert "checkpoints set aside" not in after and after["checkpoints"]["goes"] == 0
    logs = rows["logs"]["goes"]
    cleaned = json.loads(run_cli("clean", ended, "--logs", "--json").stdout)
    assert logs == sum(row["bytes"] for row in cleaned["rows"] if row["what"] == "logs") > 0


@pytest.mark.parametrize(
    ("wanted", "more", "started"),
    [
        (5, (), False),  # the newest that a trainer goes on from is of step 5
        (3, (), False),
        (6, (), True),
        (None, (), True),  # only the trainer knows
        (5, ("validates",), True),
    ],
)
def test_a_run_with_no_step_left_to_train_is_not_started_again(
    ended: Path, wanted: int | None, more: tuple[str, ...], started: bool
) -> None:
    """Everything would start, for minutes on GPUs, and then end without a step."""
    plan = read_plan(ended / "plan.json")
    service = plan.services[0]
    if more:
        service = replace(service, argv=(*service.argv, "trainer.val_before_train=True"))
    plan = replace(plan, resumes_from="checkpoints", total_steps=wanted, services=(service,))
    (ended / "plan.json").write_bytes(msgspec.json.encode(plan))
    done = run_cli("up", "--no-ui", "--resume", ended)
    attempts = sorted(path.name for path in ended.glob("attempt_*"))
    if started:
        assert attempts == ["attempt_001", "attempt_002"], (
            done.stderr
        )  # the toy ends without a step, which is told
        return
    assert (done.returncode, attempts) == (2, ["attempt_001"])
    steps = f"{wanted} steps are wanted"
    assert (
        f"no step is left to train: the newest checkpoint is of step 5, and {steps}, so nothing was started"
        in done.stderr
    )
    assert "--set training.total_steps=10" in done.stderr
