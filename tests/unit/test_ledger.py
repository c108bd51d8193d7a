"""The ledger of runs: rows are added, and nothing else of the file changes."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from liverl.exit_codes import ExitCode
from liverl.model import Cause, Result, Rewards, TrialHead
from liverl.offline.archive import sample, spread
from liverl.rundir import ledger
from liverl.rundir.ledger import Ledger, LedgerError, added, changed, next_id, row_of, rows
from liverl.util.git_head import git_head

LIVERL = """\
# kept by hand
- id: run_001
  started_at: 2026-01-02T03:04:05
  completed_at: null
  status: running
  archive: artifacts/archives/run_001   # the first one
  notes: "a: b"
"""


def result(state: str = "failed", attempt: int = 1) -> Result:
    cause = Cause("trainer", "CUDA out of\n memory: \u0085 \U0001f600", 5.0)
    return Result(
        state, ExitCode.FAILED, cause, 8, 1_700_000_000.0, 1_700_000_100.0, attempt, "failed after 8 steps"
    )  # type: ignore[arg-type]


ROW = row_of("p/n", Path("/runs/p/n"), result(), Rewards(8, 0.125, 0.5))


def test_a_row_has_the_keys_of_liverl_first_and_then_ours() -> None:
    (row,) = rows(added("", {"id": "run_001", **ROW}))
    assert list(row) == [
        *("id", "started_at", "completed_at", "status", "archive", "notes"),
        *(
            "run",
            "attempt",
            "exit_code",
            "steps",
            "total_steps",
            "reward_first",
            "reward_last",
            "cause",
            "run_dir",
        ),
    ]
    assert row["started_at"] == "2023-11-14T22:13:20Z" and row["completed_at"] == "2023-11-14T22:15:00Z"
    assert row["status"] == "failed" and row["archive"] is None
    assert row["notes"] == "p/n attempt 1: failed after 8 steps"
    assert (row["reward_first"], row["reward_last"], row["steps"]) == (0.125, 0.5, 8)
    assert row["cause"] == "CUDA out of memory: \U0001f600"
    assert [ledger.STATUS[s] for s in ("done", "stopped", "failed")] == ["completed", "interrupted", "failed"]


@pytest.mark.parametrize(
    "text",
    [
        LIVERL,
        LIVERL.rstrip("\n"),
        "runs:\n" + "".join(f"  {line}\n" for line in LIVERL.splitlines()[1:]) + "version: 1\n",
        "version: 1\nruns:\n" + LIVERL,
        "runs: []\nversion: 1\n",
        "[]\n",
        "",
        "# nothing yet\n",
    ],
)
def test_what_is_there_stays_byte_for_byte(text: str) -> None:
    after = added(text, {"id": "run_002", **ROW})
    assert [row["id"] for row in rows(after)] == [*(row["id"] for row in rows(text)), "run_002"]
    for line in text.splitlines():
        assert line in after.splitlines() or "[]" in line
    again = added(after, {"id": "run_003", **ROW})
    assert [row["id"] for row in rows(again)][-2:] == ["run_002", "run_003"]
    assert ("version" in text) == ("version" in str(yaml.safe_load(again)))


def test_only_the_archive_changes() -> None:
    text = added(LIVERL, {"id": "run_002", **ROW})
    after = changed(text, "run_002", "artifacts/archives/run_002")
    assert after == text.replace("archive: null", "archive: artifacts/archives/run_002")
    assert "# the first one" in changed(after, "run_001", "elsewhere")
    empty = "- id: run_001\n  archive:\n  notes: x\n"
    assert yaml.safe_load(changed(empty, "run_001", "a/b")) == [
        {"id": "run_001", "archive": "a/b", "notes": "x"}
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- id: [", "index.yaml:1: not valid YAML"),
        ("- a\n- b: 1\n", "row 1 is not a mapping"),
        ("just text", "expected a list of rows"),
        ("runs: 3\n", "expected a list of rows"),
        ("[{id: run_001}]\n", "index.yaml:1: the list of rows is written as"),
        ("- id: x\n  at: \x07\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "index.yaml").write_text(text)
    with pytest.raises(LedgerError) as error:
        Ledger(tmp_path).enter(ROW)
    assert words in str(error.value)
    assert (tmp_path / "index.yaml").read_text() == text


def test_no_row_to_change() -> None:
    with pytest.raises(LedgerError, match="no row with the id run_009"):
        changed(LIVERL, "run_009", "x")
    with pytest.raises(LedgerError, match="has no key archive"):
        changed("- id: run_001\n", "run_001", "x")


def test_numbers_go_on_after_rows_and_folders() -> None:
    assert next_id([], []) == "run_001"
    assert next_id([{"id": "run_007"}, {"id": "other"}, {}], ["run_011", "x"]) == "run_012"
    assert next_id([{"id": "run_1234"}], []) == "run_1235"


def test_an_attempt_has_one_row(tmp_path: Path) -> None:
    one = Ledger(tmp_path / "artifacts")
    assert one.enter(ROW) == one.enter(ROW) == "run_001"
    assert one.enter(row_of("p/n", Path("/runs/p/n"), result(attempt=2), Rewards())) == "run_002"
    assert [row["attempt"] for row in one.rows()] == [1, 2]


def _enter(folder: Path, number: int) -> None:
    Ledger(folder).enter(row_of("p/n", Path(f"/runs/p/{number}"), result(), Rewards()))


def test_several_runs_that_end_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_enter, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    found = Ledger(tmp_path).rows()
    assert [row["id"] for row in found] == ["run_001", "run_002", "run_003", "run_004"]
    assert {row["run_dir"] for row in found} == {f"/runs/p/{number}" for number in range(4)}


def test_a_lock_that_is_held_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_LOCK_S", 0.1)
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another process has held it"):
            Ledger(tmp_path).enter(ROW)
    assert not (tmp_path / "index.yaml").exists()


def test_the_commit_of_a_working_tree(tmp_path: Path) -> None:
    repository, commit = tmp_path / "repo", "a" * 40
    (repository / ".git/refs/heads").mkdir(parents=True)
    (repository / "scripts").mkdir()
    assert git_head(repository / "scripts") is None
    (repository / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (repository / ".git/packed-refs").write_text(f"# pack-refs with: peeled\n{'b' * 40} refs/heads/main\n")
    assert git_head(repository / "scripts") == "b" * 40
    (repository / ".git/refs/heads/main").write_text(f"{commit}\n")
    assert git_head(repository / "scripts") == commit
    (repository / ".git/HEAD").write_text(f"{'c' * 40}\n")
    assert git_head(repository) == "c" * 40
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    own = repository / ".git/worktrees/one"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    (worktree / ".git").write_text(f"gitdir: {own}\n")
    assert git_head(worktree) == commit
    assert git_head(tmp_path / "nothing") is None


def of_step(step: int, rewards: Sequence[float | None], **fields: Any) -> list[TrialHead]:
    return [
        TrialHead(
            *(f"{step}-{n}", step, "x", "finished", 1, 0, reward, None, 0, None, None, 1.0),
            path=f"trials/{step}/{n}",
            **fields,
        )
        for n, reward in enumerate(rewards)
    ]


def test_the_sample_has_the_worst_and_the_best_trial_of_each_step() -> None:
    steps = [of_step(step, [0.5, 0.9, 0.1, 0.7]) for step in (9, 6, 3, 1)]
    assert [head.name for head in sample(steps)] == ["9-2", "6-2", "3-2", "1-2", "9-1", "6-1", "3-1", "1-1"]
    assert [head.name for head in sample(steps[:1])] == ["9-2", "9-1", "9-0", "9-3"], "no more than there are"
    many = of_step(7, [n / 20 for n in range(20)])
    assert [head.name for head in sample([many])] == [f"7-{n}" for n in (0, 19, 1, 18, 2, 17, 3, 16)]
    assert sample([]) == sample([[]]) == []


def test_what_says_least_of_a_step_comes_last_in_the_sample() -> None:
    said = of_step(2, [0.5])
    rest = [*of_step(3, [0.0], earlier=True), *of_step(4, [0.0], validated=2), *of_step(5, [None])]
    assert [head.name for head in sample([[*rest, *said]])] == ["2-0", "3-0", "4-0", "5-0"]


@pytest.mark.parametrize(
    ("steps", "chosen"),
    [
        ([], []),
        ([7], [7]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        (range(1, 21), [1, 7, 14, 20]),
        ([1, 2, 3, 4, 90], [1, 2, 4, 90]),
    ],
)
def test_the_sample_is_of_steps_from_the_first_to_the_newest(steps: Sequence[int], chosen: list[int]) -> None:
    assert spread(steps, 4) == chosen


# --- in a run root that other users can write ---

ANOTHER = 64321  # the id of a user that is not this one


def planted(root: Path, kind: str, home: Path) -> None:
    """What another user makes in ``root`` before the first run of this user ends there."""
    artifacts, target = root / "artifacts", home / ".profile"
    if kind == "artifacts is a link":
        artifacts.symlink_to(home)
        os.lchown(artifacts, ANOTHER, ANOTHER)
        return
    artifacts.mkdir()
    if kind == "all can write it":
        artifacts.chmod(0o777)
        return
    if kind == "archives is a link":
        (artifacts / "archives").symlink_to(home)
    elif kind == "lock is a link":
        (artifacts / ".lock").symlink_to(target)
    elif kind == "index is a link":
        (artifacts / "index.yaml").symlink_to(target)
    elif kind == "archives are of another user":
        (artifacts / "archives").mkdir()
        os.chown(artifacts / "archives", ANOTHER, ANOTHER)
        return
    for path in (artifacts, *artifacts.iterdir()):
        os.lchown(path, ANOTHER, ANOTHER)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(
    "kind",
    [
        *("artifacts is a link", "archives is a link", "lock is a link", "index is a link"),
        *("all can write it", "artifacts are of another user", "archives are of another user"),
    ],
)
def test_nothing_is_written_where_another_user_could_have_changed_it(tmp_path: Path, kind: str) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    root.mkdir()
    root.chmod(0o1777)
    home.mkdir()
    planted(root, kind, home)
    for named in (False, True):
        with pytest.raises((LedgerError, OSError)) as error:
            Ledger(root / "artifacts", named=named).enter(ROW)
        assert str(root / "artifacts") in str(error.value), "it says where"
    assert os.listdir(home) == [] and not (root / "artifacts" / "index.yaml").is_file()
    if kind in ("all can write it", "artifacts are of another user"):
        assert Ledger(root / "artifacts", trusted=[str(root.resolve())]).enter(ROW) == "run_001"


def test_links_of_the_user_lead_out_of_a_ledger_that_was_named_only(tmp_path: Path) -> None:
    """As where the index lies in a repository."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "index.yaml").symlink_to(repository / "index.yaml")
    with pytest.raises(LedgerError, match="links out of the folder are followed only if"):
        Ledger(tmp_path / "artifacts").enter(ROW)
    assert not (repository / "index.yaml").exists()
    assert Ledger(tmp_path / "artifacts", named=True).enter(ROW) == "run_001"
    assert (repository / "index.yaml").is_file() and (tmp_path / "artifacts" / "index.yaml").is_symlink()
    (tmp_path / "way").symlink_to(tmp_path / "real")  # the folder itself may be a link of the user's
    (tmp_path / "real").mkdir()
    assert Ledger(tmp_path / "way").enter(ROW) == "run_001"
    assert (tmp_path / "real" / "index.yaml").is_file()
