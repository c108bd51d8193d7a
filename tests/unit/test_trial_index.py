"""The index of all trials: it says of each what its head says, finds what a filter finds, and is kept in a file."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
from array import array
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
from liverl.observe.trials.cut_off import with_starts
from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.index import Stored, TrialIndex, restored
from liverl.observe.trials.query import parsed
from liverl.observe.trials.records import MOST_REWARDS
from liverl.observe.trials.starts import TrainerStarts
from liverl.observe.trials.trial import Trial
from liverl.offline import trial_index
from liverl.offline.trial_index import GAPS, NAME, RunIndex
from liverl.rundir.layout import RunDir
from liverl_tui.widgets.dashboard.trial_whole import Asked, Where, WholeRun, _gap_words, corrected

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


def test_every_part_of_a_reward_is_found_however_many_there_are() -> None:
    index, placed = indexed([replace(HEAD, rewards={f"p{n}": float(n) for n in range(MOST_REWARDS)}), HEAD])
    last = f"rewards.p{MOST_REWARDS - 1}"
    for one in (index, restored(index.stored())):
        assert [one.head(row).rewards for row in one.rows] == [head.rewards for head in placed]
        assert one.select(parsed(f"{last}={MOST_REWARDS - 1}")) == [0]
        assert one.select(parsed(f"{last}=none")) == [1] and one.select(parsed("rewards.p0>0")) == []


def test_parts_of_rewards_that_no_two_trials_share() -> None:
    index, placed = indexed([replace(HEAD, rewards={f"p{n}": float(n), "all": 1.0}) for n in range(50)])
    index.remove(placed[7].path)
    again = restored(index.stored())
    assert [again.head(row).rewards for row in again.rows] == [h.rewards for h in placed if h != placed[7]]
    assert again.select(parsed("rewards.p49=49 rewards.all=1")) == [48]


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
        {"numbers": {}}, {"places": {}}, {"tables": {}}, {"part_ends": b"\0" * 16}, {"part_values": b""},
        {"part_ends": b""},
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    index, _ = indexed([replace(HEAD, rewards={"reward": 1.0}), HEAD])
    assert len(restored(index.stored())) == 2
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
        assert names(first) == [] and first.unread == {"trials/step_0001/a": "too many open files"}
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    again.refresh()
    assert names(again) == ["a"] and not again.unread


def test_a_name_that_is_no_utf_8_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, os.fsdecode(b"t\xff"))
    RunIndex(RunDir(tmp_path), live=False, own=True).refresh()
    again = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert not again.refresh() and [os.fsencode(name) for name in names(again)] == [b"t\xff"]


def with_number(name: str, value: float) -> Callable[[Stored], Stored]:
    return lambda stored: replace(stored, numbers=stored.numbers | {name: array("d", [value]).tobytes()})


def with_table(name: str, *table: tuple[bytes, ...]) -> Callable[[Stored], Stored]:
    return lambda stored: replace(stored, tables=stored.tables | {name: list(table)})


def with_folder(folder: bytes) -> Callable[[Stored], Stored]:
    """In every place where a folder stands."""
    return lambda stored: replace(
        stored, tables=stored.tables | {"folder": [(folder,)]}, folders=[(folder, 1, True)]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: replace(stored, texts=stored.texts.replace(b"\x1f", b" ")),
        lambda stored: replace(stored, texts=stored.texts[:-1] + b" "),
        lambda stored: replace(stored, texts=b"\x1f" + stored.texts[:-1]),
        lambda stored: replace(stored, texts=b"/" + stored.texts[1:]),
        lambda stored: replace(stored, folders=[]),
        lambda stored: replace(stored, numbers=stored.numbers | {"more": b"\0" * 8}),
        lambda stored: replace(stored, part_values=array("d", [math.inf]).tobytes()),
        *(with_folder(name) for name in (b"../../etc", b"/etc", b"", b"checkpoints", b"trials/..", b"trials/a",
                                          b"trialsx", b"trials/step_1/x", b"rollouts/x", b"rollouts")),
        *(with_table("state", row) for row in ((), (b"done",))),
        with_table("waits_for", ()), with_table("parts", (b"p", b"p")),
        *(with_number(name, value) for name in ("reward", "step", "turns", "calls", "tokens", "time", "agent", "at",
                                                "started", "ended", "updated") for value in (math.inf, -math.inf)),
        *(with_number(name, value) for name, value in (("step", -1.0), ("turns", 1e17), ("started", 1e12))),
    ],
)  # fmt: skip
def test_an_index_that_somebody_else_wrote_is_not_believed(change: Callable[[Stored], Stored]) -> None:
    index = TrialIndex()
    index.put(replace(head_of("a"), rewards={"reward": 1.0}))
    assert restored(index.stored()).path(0) == "trials/step_0001/a"
    with pytest.raises(ValueError):
        restored(change(index.stored()))


def test_numbers_that_are_not_known_are_read_from_a_file() -> None:
    index = TrialIndex()
    index.put(replace(head_of("a"), reward=None, step=None, rewards={"x": math.nan}))
    (head,) = [again.head(row) for again in (restored(index.stored()),) for row in again.rows]
    assert (head.reward, head.step, head.rewards) == (None, None, {})


def test_a_number_without_end_is_as_if_it_were_not_known() -> None:
    index = TrialIndex()
    for name, tokens in (("a", 10**400), ("b", 5)):
        index.put(replace(head_of(name), completion_tokens=tokens))
    assert [index.head(row).completion_tokens for row in index.rows] == [0, 5]


# -- texts of anybody

HALVES = ("\ud800", "a\udfff", "\udc41", "x\ud83d y", "\udcff")


@pytest.mark.parametrize("text", HALVES)
@pytest.mark.parametrize(
    "field", ["name", "task", "group", "preview", "failure", "ended_by", "flags", "rewards"]
)
def test_half_a_pair_in_any_text_is_no_error(field: str, text: str) -> None:
    value: Any = {"flags": (text,), "rewards": {text: 1.0}}.get(field, text)
    head = replace(head_of("a"), **{field: value})
    head = replace(head, path=f"trials/step_0001/{head.name}")
    index = TrialIndex()
    index.put(head)
    index.put(head)
    assert len(index) == 1 and index.row_of(head.path) == 1, "it takes its own place"
    again = restored(msgspec.msgpack.decode(msgspec.msgpack.encode(index.stored()), type=Stored))
    for one in (index, again):
        (row,) = one.rows
        assert one.row_of(one.path(row)) == row and one.path(row) == one.head(row).path
        assert set(one.select(parsed(text))) <= {row}
        assert field not in SORTS or one.order([row], field, descending=False) == [row]
    assert again.head(0) == index.head(1)


def test_a_word_is_found_in_one_text_only() -> None:
    """Neither across two trials nor across two texts of one."""
    heads = [
        replace(HEAD, name="ab", failure="tail-cd"),
        replace(HEAD, name="ef", preview="one", failure="two"),
    ]
    index = TrialIndex()
    for head in heads:
        index.put(replace(head, path=f"trials/step_0001/{head.name}"))
    for word in ("cdef", "d-e", "onetwo", '"one two"', '"one\x1ftwo"', '"one\ntwo"'):
        query = parsed(word)
        assert index.select(query) == [] == [h for h in heads if query.holds_for(h)], word
    assert index.select(parsed("cd ab")) == [0] and index.select(parsed("two one")) == [1]


# -- what verl has dumped


def dump(run: Path, step: int, rows: dict[str, float], at: float = T) -> None:
    text = "".join(
        json.dumps({"uid": f"{uid}_0", "score": score, "output": "x"}) + "\n" for uid, score in rows.items()
    )
    put(run / "rollouts" / f"{step}.jsonl", text, at)


def dumped(run: Path) -> dict[str, float | None]:
    index = RunIndex(RunDir(run), live=False, own=True)
    index.refresh()
    assert not index.gaps
    return {index.index.head(row).path: index.index.head(row).reward for row in index.index.rows}


def test_a_dump_that_was_written_again_or_removed(tmp_path: Path) -> None:
    dump(tmp_path, 1, {"a_0": 0.5, "b_0": 1.0})
    dump(tmp_path, 2, {"c_0": 0.0})
    assert len(dumped(tmp_path)) == 3
    dump(tmp_path, 1, {"a_0": 0.25, "d_0": 1.0}, at=T + 10)
    assert dumped(tmp_path) == {
        "rollouts/1.jsonl/a_0": 0.25, "rollouts/1.jsonl/d_0": 1.0, "rollouts/2.jsonl/c_0": 0.0,
    }  # fmt: skip
    (tmp_path / "rollouts" / "2.jsonl").unlink()
    assert dumped(tmp_path).keys() == {"rollouts/1.jsonl/a_0", "rollouts/1.jsonl/d_0"}
    shutil.rmtree(tmp_path / "rollouts")
    assert dumped(tmp_path) == {}


def test_a_dump_and_the_directories_of_its_trials(tmp_path: Path) -> None:
    """A trial is in the index once: with its directory, and without it by its row in the dump."""
    dump(tmp_path, 1, {"a_0": 0.5, "b_0": 1.0})
    assert len(dumped(tmp_path)) == 2
    folder = write(tmp_path, 1, "trial-a")
    put(folder / "liverl.json", json.dumps({"uid": "a", "session": 0}), T)
    before = dumped(tmp_path)
    if "rollouts/1.jsonl/a_0" in before:
        pytest.fail(f"its row is listed beside its directory: {before}")
    assert before.keys() == {"rollouts/1.jsonl/b_0", "trials/step_0001/trial-a"}
    shutil.rmtree(folder.parent)
    assert dumped(tmp_path).keys() == {"rollouts/1.jsonl/a_0", "rollouts/1.jsonl/b_0"}


KEYS = ("a/b_0", "/", "../../x_0", "..", "", "ü/\u2028", 'q"_0', "b\\", " ", "\ud800_0")


def test_any_key_of_a_dump_is_kept_and_read(tmp_path: Path) -> None:
    dump(tmp_path, 1, dict.fromkeys(KEYS, 0.5))
    write(tmp_path, 1, "a")
    first = dumped(tmp_path)
    assert len(first) == len(KEYS) + 1
    before = (tmp_path / NAME).stat().st_mtime_ns
    run = RunIndex(RunDir(tmp_path), live=False, own=True)
    assert not run.refresh() and len(run.index) == len(first), "its file was believed"
    assert (tmp_path / NAME).stat().st_mtime_ns == before
    for path in (path for path in first if path.startswith("rollouts")):
        found = reader_of(tmp_path / path).read()
        known = path.rpartition("/")[2] and "\ufffd" not in path  # "": its slashes are lost on the way
        assert found.turns or not known, path


# -- what cannot be read


def refusing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Directories of these names cannot be listed, as those of another user."""
    scan = os.scandir

    def refuse(path: Any = ".") -> Any:
        if os.path.basename(os.fspath(path)) in names:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.mark.parametrize(
    ("refused", "listed"),
    [
        ("trials", ["u_0"]),
        ("trials.1", ["a", "b", "u_0"]),
        ("step_0001", ["b", "c", "u_0"]),
        ("rollouts", ["a", "b", "c"]),
    ],
)
def test_what_may_not_be_listed_is_named_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, listed: list[str]
) -> None:
    other = tmp_path / "other"
    write(other, 3, "c")
    run = tmp_path / "run"
    write(run, 1, "a"), write(run, 2, "b"), dump(run, 1, {"u_0": 0.5})
    (run / "trials.1").symlink_to(other / "trials")
    if refused == "trials":
        listed = [*listed, "c"]
    with monkeypatch.context() as patched:
        refusing(patched, refused)
        index = RunIndex(RunDir(run), live=False, own=True)
        index.refresh()
        assert names(index) == sorted(listed)
        (gap,) = index.gaps
        assert refused in gap and gap.endswith("could not be read: Permission denied")
        assert not index.refresh() and index.gaps == (gap,), "it is said again"
    assert index.refresh() and names(index) == ["a", "b", "c", "u_0"] and not index.gaps
    with monkeypatch.context() as patched:
        refusing(patched, refused)
        again = RunIndex(RunDir(run), live=False, own=True)
        again.refresh()
        assert names(again) == ["a", "b", "c", "u_0"], "what was read before stays"


def test_a_dump_that_must_not_be_read_is_named(tmp_path: Path) -> None:
    dump(tmp_path, 1, {"a_0": 0.5})
    os.mkfifo(tmp_path / "rollouts" / "2.jsonl")
    index = RunIndex(RunDir(tmp_path), live=False, own=True)
    index.refresh()
    assert names(index) == ["a_0"] and [gap.partition(" ")[0] for gap in index.gaps] == ["rollouts/2.jsonl"]


def test_what_could_not_be_read_is_named_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = RunIndex(RunDir(tmp_path), live=False, own=True)
    for count, more in ((GAPS, 0), (GAPS + 1, 1), (20_000, 20_000 - GAPS)):
        index.unread = {f"trials/{number}": "Permission denied" for number in range(count)}
        first = [f"trials/{number} could not be read: Permission denied" for number in range(GAPS)]
        last = [f"and {more:,} more could not be read"] if more else []
        assert list(index.gaps) == first + last
        index.full = True
        assert len(index.gaps) == GAPS + 1 and index.gaps[0].startswith("only the newest")
        assert index.gaps[-1] == f"and {more + 1:,} more could not be read"
        index.full = False
    assert _gap_words(index.first_gaps(1)) == (
        "▲ incomplete list: trials/0 could not be read: Permission denied, and 19,999 more could not be read"
    )
    index.unread = {}
    assert index.gaps == () and _gap_words(index.first_gaps(1)) == ""


# -- how many


@pytest.mark.parametrize(
    ("most", "kept", "full"),
    [(9, 6, False), (6, 6, False), (5, 5, True), (3, 3, True), (2, 2, True), (1, 1, True)],
)
def test_at_most_so_many_are_kept_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: int, full: bool
) -> None:
    """Wherever the limit is: in a folder, in a dump, between two of them."""
    for step, name in ((1, "a"), (1, "b"), (2, "c")):
        write(tmp_path, step, name)
    dump(tmp_path, 3, {"d_0": 0.5, "e_0": 0.5})
    put(tmp_path / "trials" / "flat" / FILE, lines(call()), T)
    monkeypatch.setattr(trial_index, "MOST", most)
    order = ["d_0", "e_0", "c", "a", "b", "flat"]
    for _ in range(3):
        index = RunIndex(RunDir(tmp_path), live=False, own=True)
        index.refresh()
        assert names(index) == sorted(order[:kept]) and index.full is full
        assert index.gaps == ((f"only the newest {most} trials are indexed",) if full else ())
    write(tmp_path, 4, "new", at=T + 50)
    index.refresh()
    assert names(index) == sorted(["new", *order][:most]), "the newest steps come first, also later"
    monkeypatch.setattr(trial_index, "MOST", 100)
    index.refresh()
    assert names(index) == sorted(["new", *order]) and not index.gaps


# -- trials of earlier attempts


def test_earlier_trials_are_marked_without_a_head_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = [T, T + 100, T + 200]
    journal = [{"at": at, "k": "attempt", "n": n, "monotonic": 1.0} for n, at in enumerate(starts, 1)]
    journal += [{"at": at, "k": "intent", "svc": "trainer", "gen": n} for n, at in enumerate(starts, 1)]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in journal)
    put(tmp_path / "journal.jsonl", text, T)
    for step, name, at in (
        (1, "a", T + 10),
        (2, "b", T + 20),
        (3, "c", T + 30),
        (2, "d", T + 110),
        (5, "e", T + 210),
    ):
        folder = tmp_path / "trials" / f"step_{step:04d}" / name
        put(folder / FILE, lines(call(calls=1, request_time=at)), at)
        if name != "d":
            put(folder / "result.json", json.dumps({"verifier_result": {"rewards": {"reward": 1.0}}}), at)
        os.utime(folder.parent, (at, at))
    made: list[int] = []
    head = TrialIndex.head
    monkeypatch.setattr(TrialIndex, "head", lambda self, row: made.append(row) or head(self, row))
    run = RunIndex(RunDir(tmp_path), live=True, own=True)
    run.refresh()
    assert len(made) <= 1, "at most that of the trial that was cut off"
    found = {one.name: (one.earlier, one.state) for one in (head(run.index, row) for row in run.index.rows)}
    assert found == {
        "a": (False, "finished"), "b": (True, "finished"), "c": (True, "finished"), "d": (False, "cut_off"),
        "e": (False, "finished"),
    }  # fmt: skip
    poll = TrainerStarts(tmp_path)
    poll.poll()
    heads = [replace(head(run.index, row), earlier=False) for row in run.index.rows]
    assert {h.name: h.earlier for h in with_starts(heads, poll)} == {n: e for n, (e, _) in found.items()}
    assert [row for row in run.index.rows if row not in run.index.select(parsed("state=cut_off"))]


def _head(name: str, **more: Any) -> TrialHead:
    return TrialHead(
        **{
            "name": name, "step": 1, "task": "t", "state": "finished", "turns": 1, "tool_calls": 0, "reward": None,
            "finish_reason": None, "completion_tokens": 0, "replica": None, "started_at": T, "updated_at": T,
            "path": f"trials/step_0001/{name}", **more,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("filter_text", "descending", "wanted"),
    [("calls=0", False, ["a", "d"]), ("calls>2", False, ["b"]), ("", True, ["d", "c", "b", "a"]),
     ("state=running", False, ["c"])],
)  # fmt: skip
def test_a_list_is_as_its_trials_are_now(filter_text: str, descending: bool, wanted: list[str]) -> None:
    """``b`` was read when it had no call, ``d`` while it ran; both have gone on since, and ``new`` is not read yet."""
    index = TrialIndex()
    for head in (
        _head("a"),
        _head("b", flags=("zero_tool_calls",), started_at=T + 1),
        _head("c", state="running", started_at=T + 2),
        _head("d", state="running", started_at=T + 3),
    ):
        index.put(head)
    asked = Asked(parsed(filter_text), descending=descending)
    rows = index.order(index.select(asked.query), asked.sort, asked.descending)
    now = [_head("b", tool_calls=3, started_at=T + 1), _head("d", started_at=T + 3), _head("new")]
    found = corrected(index, rows, asked, {head.path: head for head in now})
    assert [index.head(row).name for row in found] == wanted


async def test_trials_that_change_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is not all that changes: a trial goes on, and ends."""
    monkeypatch.setattr("liverl_tui.widgets.dashboard.trial_whole.AGAIN_S", 0.0)
    works: list[Any] = []
    whole = WholeRun(
        lambda work, **_: works.append(work), lambda: Where(tmp_path, True, True), lambda: None
    )  # fmt: skip
    asked = Asked(parsed("calls=0"))
    whole.ask(asked, "begun")
    await works.pop()
    whole._took = 0.0
    whole.ask(asked, "begun")
    assert not works and not whole.due
    whole.ask(asked, "gone on")
    await works.pop()
    whole._took = 0.0
    monkeypatch.setattr("liverl_tui.widgets.dashboard.trial_whole.AGAIN_S", 1e9)
    whole.ask(asked, "ended")
    assert not works and not whole.due  # it was read a moment ago ...
    monkeypatch.setattr("liverl_tui.widgets.dashboard.trial_whole.AGAIN_S", 0.0)
    assert whole.due  # ... and is read when it is time, though nothing changes any more
    whole.close()
    assert not whole.due
