"""The index of all trials: it says of each what its head says, finds what a filter finds, and is kept in a file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.trial_folders import FILE, T, call, lines, put
from msgspec.structs import replace

from liverl.model import TrialHead
from liverl.observe.trials.index import Stored, TrialIndex, restored
from liverl.observe.trials.query import parsed
from liverl.observe.trials.trial import Trial
from liverl.offline import trial_index
from liverl.offline.trial_index import NAME, RunIndex
from liverl.rundir.layout import RunDir

TASKS = ("move-1", "copy-2", "ünicode")
TRIALS = st.builds(
    TrialHead,
    name=st.text(min_size=1, max_size=8).map(
        lambda s: s.replace("/", "-").replace(".", "-").replace("\x1f", "-")
    ),
    step=st.none() | st.integers(0, 9),
    task=st.sampled_from(TASKS),
    state=st.sampled_from(["running", "finished", "cut_off"]),
    turns=st.integers(0, 9),
    tool_calls=st.integers(0, 9),
    reward=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    finish_reason=st.none() | st.sampled_from(["stop", "length"]),
    completion_tokens=st.integers(0, 999),
    replica=st.none() | st.just("http://127.0.0.1:8000"),
    started_at=st.none() | st.floats(T, T + 100),
    updated_at=st.floats(T, T + 200),
    flags=st.sampled_from([(), ("zero_tool_calls",), ("failed_turns", "no_reward")]),
    ended_at=st.none() | st.floats(T, T + 200),
    ended_by=st.none() | st.sampled_from(["submit", "AgentTimeoutError"]),
    group=st.text(max_size=3).map(lambda s: s.replace("\x1f", "-")),
    preview=st.text(max_size=12).map(lambda s: s.replace("\x1f", "-")),
    failure=st.sampled_from(["", "OSError: Disk"]),
    earlier=st.booleans(),
    kind=st.sampled_from(["", "command"]),
    phases=st.dictionaries(st.sampled_from(["queue", "agent", "verifier"]), st.sampled_from([0.5, 2.0])),
    rewards=st.dictionaries(st.sampled_from(["reward", "tests"]), st.sampled_from([0.0, 1.0])),
)
FILTERS = (
    "", "reward<1", "reward>=0.5 calls=0", "step=3..9", "step!=3..9", "reward=none", "reward!=1", "time>50",
    "task~move", "task!~move", "task=ünicode", "finish=timeout", "finish=submitted", "state=done", "flag=none",
    "kind=command", "rewards.tests=1", "rewards.other=none", "rewards.other<1", "verifier<=2", "name~a", "name=a",
    "name!~a", "group=none", "last~b", "last!=b", "a", "A", "disk", "Disk", "timeout", "zero", "ü",
    "reward<1 task~move a", "submitted",
)  # fmt: skip


def indexed(heads: list[TrialHead]) -> tuple[TrialIndex, list[TrialHead]]:
    placed = [replace(head, path=f"trials/step_0001/{n:03d}{head.name}") for n, head in enumerate(heads)]
    placed = [replace(head, name=head.path.rpartition("/")[2]) for head in placed]
    index = TrialIndex()
    for head in placed:
        index.put(head)
    return index, placed


@settings(deadline=None)
@given(st.lists(TRIALS, max_size=12))
def test_it_says_what_the_heads_say(heads: list[TrialHead]) -> None:
    index, placed = indexed(heads)
    again = restored(msgspec.msgpack.decode(msgspec.msgpack.encode(index.stored()), type=Stored))
    for one in (index, again):
        assert [one.head(row) for row in one.rows] == placed
        assert [one.row_of(head.path) for head in placed] == list(range(len(placed)))
        for text in FILTERS:
            query = parsed(text)
            expected = [row for row, head in enumerate(placed) if query.holds_for(head)]
            assert one.select(query) == expected, text


SORTS = ("reward", "step", "time", "at", "task", "finish", "flag", "name", "last")


@settings(deadline=None)
@given(st.lists(TRIALS, max_size=12), st.sampled_from(SORTS), st.booleans())
def test_orders(heads: list[TrialHead], name: str, descending: bool) -> None:
    index, _ = indexed(heads)
    found = index.order(index.rows, name, descending)
    assert sorted(found) == list(index.rows)
    if name in ("reward", "step"):
        values = [getattr(index.head(row), name) for row in found]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=descending) and values[len(known) :] == [None] * (
            len(values) - len(known)
        )


def test_a_trial_takes_the_place_of_its_former_row() -> None:
    index, placed = indexed([replace(HEAD, name=name) for name in ("a", "b", "c")])
    index.put(replace(placed[1], reward=0.25))
    index.remove(placed[0].path)
    index.remove("trials/none")
    assert (len(index), index.size) == (2, 4)
    assert [index.head(row).reward for row in index.rows] == [1.0, 0.25]
    assert index.select(parsed("reward=0.25 b")) == [3] and index.row_of(placed[0].path) is None
    assert list(index.rewards(index.rows)) == [1.0, 0.25]
    again = restored(index.stored())
    assert [again.head(row).path for row in again.rows] == [
        placed[2].path,
        placed[1].path,
    ] and again.size == 2


HEAD = TrialHead(
    name="a", step=1, task="t", state="finished", turns=1, tool_calls=1, reward=1.0, finish_reason="stop",
    completion_tokens=1, replica=None, started_at=T, updated_at=T,
)  # fmt: skip


def test_parts_of_rewards_are_bounded() -> None:
    index, _ = indexed([replace(HEAD, rewards={f"p{n}": float(n) for n in range(MOST_PARTS + 4)}), HEAD])
    assert len(index.head(0).rewards) == MOST_PARTS and index.head(1).rewards == {}


def head_of(name: str) -> TrialHead:
    return TrialHead(
        name=name,
        step=1,
        task="t",
        state="finished",
        turns=1,
        tool_calls=1,
        reward=1.0,
        finish_reason=None,
        completion_tokens=1,
        replica=None,
        started_at=T,
        updated_at=T,
        path=f"trials/step_0001/{name}",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0}, {"byteorder": "middle"}, {"rows": 3}, {"texts": b""}, {"ends": b"\0" * 8},
        {"numbers": {}}, {"places": {}}, {"tables": {}},
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    index, _ = indexed([HEAD, HEAD])
    with pytest.raises(ValueError):
        restored(replace(index.stored(), **change))


# -- of a run's files


def write(run: Path, step: int, name: str, reward: float | None = 1.0, at: float = T) -> Path:
    folder = run / "trials" / f"step_{step:04d}" / name
    put(folder / FILE, lines(call(calls=1)), at)
    if reward is not None:
        put(folder / "result.json", json.dumps({"verifier_result": {"rewards": {"reward": reward}}}), at)
    os.utime(folder.parent, (at, at))
    return folder


def names(run: RunIndex) -> list[str]:
    return sorted(run.index.head(row).name for row in run.index.rows)


def test_what_is_new_is_read_and_the_rest_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    head_of = trial_index.whole_head
    monkeypatch.setattr(
        trial_index, "whole_head", lambda trial, *more: read.append(trial.name) or head_of(trial, *more)
    )
    for step, name in ((1, "a"), (1, "b"), (2, "c")):
        write(tmp_path, step, name)
    first = RunIndex(RunDir(tmp_path), live=False, own=True)
    progress: list[tuple[int, int]] = []
    assert first.refresh(lambda *counts: progress.append(counts)) and names(first) == ["a", "b", "c"]
    assert read == ["c", "a", "b"] and progress[0] == (1, 3), "the newest step comes first"
    assert not first.refresh() and read == ["c", "a", "b"]
    second = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert not second.refresh() and names(second) == ["a", "b", "c"] and len(read) == 3, "it is of the file"
    write(tmp_path, 2, "d", at=T + 5)
    assert second.refresh() and names(second) == ["a", "b", "c", "d"] and read[3:] == ["d"]
    (tmp_path / NAME).write_bytes(b"nothing of ours")
    third = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert third.refresh() and names(third) == ["a", "b", "c", "d"] and len(read) == 8


def test_a_trial_that_runs_is_read_until_it_has_ended(tmp_path: Path) -> None:
    folder = write(tmp_path, 1, "a", reward=None)
    run = RunIndex(RunDir(tmp_path), live=True, own=True)
    run.refresh()
    assert [run.index.head(row).state for row in run.index.rows] == ["running"]
    put(folder / "result.json", '{"verifier_result": {"rewards": {"reward": 0.5}}}', time.time())
    run.refresh()
    assert [(run.index.head(r).state, run.index.head(r).reward) for r in run.index.rows] == [
        ("finished", 0.5)
    ]
    over = RunIndex(RunDir(tmp_path), live=False, own=True)
    write(tmp_path, 2, "b", reward=None)
    over.refresh()
    assert [over.index.head(row).state for row in over.index.rows] == ["finished", "cut_off"]


def test_a_foreign_run_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVERL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial_index, "KEPT", 2)
    for number in range(4):
        write(tmp_path / f"run{number}", 1, "a")
        run = RunIndex(RunDir(tmp_path / f"run{number}"), live=False, own=False)
        run.refresh()
        os.utime(run.path, (1000 + number, 1000 + number))
        assert not (run._run.path / NAME).exists()
    kept = {path.name for path in (tmp_path / "cache" / "trials").iterdir()}
    assert len(kept) == 2 and run.path.name in kept
    (tmp_path / "elsewhere").symlink_to(tmp_path / "run3")
    assert RunIndex(RunDir(tmp_path / "elsewhere"), live=False, own=False).path == run.path


def test_a_run_that_cannot_be_written_is_indexed_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(trial_index, "write_atomic", refuse)
    write(tmp_path, 1, "a")
    run = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert run.refresh() and names(run) == ["a"] and not (tmp_path / NAME).exists()


def test_what_verl_has_dumped_and_what_is_flat(tmp_path: Path) -> None:
    put(tmp_path / "trials" / "flat-1" / FILE, lines(call()), T)
    put(
        tmp_path / "rollouts" / "3.jsonl", json.dumps({"uid": "u_0_0", "score": 0.5, "output": "x"}) + "\n", T
    )
    run = RunIndex(RunDir(tmp_path), live=False, own=True)
    run.refresh()
    heads = sorted((run.index.head(row) for row in run.index.rows), key=lambda head: head.path)
    assert [(head.path, head.step, head.dumped) for head in heads] == [
        ("rollouts/3.jsonl/u_0", 3, True), ("trials/flat-1", None, False),
    ]  # fmt: skip


def test_a_trial_that_was_cut_off_is_read_again(tmp_path: Path) -> None:
    """Its services lived on, and a backend took them over."""
    folder = write(tmp_path, 1, "a", reward=None)
    over = RunIndex(RunDir(tmp_path), live=False, own=True)
    over.refresh()
    assert [over.index.head(row).state for row in over.index.rows] == ["cut_off"]
    put(folder / "result.json", '{"verifier_result": {"rewards": {"reward": 1.0}}}', time.time())
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    again.refresh()
    assert [(again.index.head(r).state, again.index.head(r).reward) for r in again.index.rows] == [
        ("finished", 1.0)
    ]


def test_trials_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    for step, name in ((1, "a"), (1, "b"), (2, "c")):
        write(tmp_path, step, name)
    RunIndex(RunDir(tmp_path), live=False, own=True).refresh()
    (one,) = [path for path in (tmp_path / "trials").rglob("a*") if path.is_dir()]
    shutil.rmtree(one)
    (step,) = [path for path in (tmp_path / "trials").iterdir() if path.name.endswith("2")]
    shutil.rmtree(step)
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert again.refresh() and names(again) == ["b"]
    third = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert not third.refresh() and names(third) == ["b"]


def test_a_trial_that_could_not_be_read_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, "a")
    with monkeypatch.context() as patched:

        def no_descriptor(*_: object) -> bool:
            raise OSError(errno.EMFILE, "too many open files")

        patched.setattr(Trial, "check", no_descriptor)
        first = RunIndex(RunDir(tmp_path), live=False, own=True)
        first.refresh()
        assert names(first) == [] and first.unread == 1
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    again.refresh()
    assert names(again) == ["a"] and again.unread == 0


def test_a_name_that_is_no_utf_8_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, os.fsdecode(b"t\xff"))
    RunIndex(RunDir(tmp_path), live=False, own=True).refresh()
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert not again.refresh() and [os.fsencode(name) for name in names(again)] == [b"t\xff"]


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: replace(stored, texts=stored.texts.replace(b"\x1f", b" ")),
        lambda stored: replace(stored, texts=b"/" + stored.texts[1:]),
        lambda stored: replace(stored, tables=stored.tables | {"folder": [(b"../../etc",)]}),
        lambda stored: replace(stored, tables=stored.tables | {"folder": [(b"/etc",)]}),
        lambda stored: replace(stored, tables=stored.tables | {"state": [()]}),
        lambda stored: replace(stored, tables=stored.tables | {"state": [(b"done",)]}),
        lambda stored: replace(stored, tables=stored.tables | {"waits_for": [()]}),
    ],
)
def test_an_index_that_somebody_else_wrote_is_not_believed(change: Callable[[Stored], Stored]) -> None:
    index = TrialIndex()
    index.put(head_of("a"))
    assert restored(index.stored()).path(0) == "trials/step_0001/a"
    with pytest.raises(ValueError, match="texts"):
        restored(change(index.stored()))


def test_a_number_without_end_is_as_if_it_were_not_known() -> None:
    index = TrialIndex()
    for name, tokens in (("a", 10**400), ("b", 5)):
        index.put(replace(head_of(name), completion_tokens=tokens))
    assert [index.head(row).completion_tokens for row in index.rows] == [0, 5]
