"""The journal of a real run, damaged in every way: no living process is lost, and none is started a second time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from liverl.plan.spec import DEFAULT_STOP
from liverl.procs import procfs
from liverl.rundir.journal import LineFile, checked_line, read_journal
from liverl.supervise.recovery.evidence import RunRecord
from liverl.supervise.recovery.replay import (
    Intent,
    RunHistory,
    Sighting,
    complete,
    lineup,
    read_history,
    takeover,
)
from liverl.supervise.services import state_machine as m
from liverl.supervise.services.state_machine import MachineState
from liverl.util.atomic_file import set_aside

DATA = Path(__file__).parents[1] / "data" / "journal"
WHOLE = (DATA / "journal.jsonl").read_bytes()
LINES = WHOLE.splitlines(keepends=True)
RECORDS = [msgspec.json.decode(line, type=dict[str, Any]) for line in LINES]
# What lived when the backend was killed: ``service.generation`` -> (pid, start tick).
LIVING = {
    key: (pid, next(r["tick"] for r in RECORDS if r["k"] == "spawned" and r["pid"] == pid))
    for key, pid in json.loads((DATA / "living.json").read_text()).items()
}
SERVICES = ("a", "door", "over", "work", "replica-0", "replica-1")
RULES = m.RestartRules(stop=DEFAULT_STOP)


def alive(pid: int, tick: int | None) -> bool:
    return (pid, tick) in LIVING.values()


def seen_by_keeper(about: bool) -> list[Sighting]:
    """Every child that the keeper has recorded; ``about``: with what it was started for."""
    intents = {f"{r['svc']}.{r['gen']}": msgspec.convert(r, Intent) for r in RECORDS if r["k"] == "intent"}
    exits = {f"{r['svc']}.{r['gen']}": r["exit"] for r in RECORDS if r["k"] == "exit"}
    found = []
    for record in RECORDS:
        if record["k"] == "spawned":
            key, member = f"{record['svc']}.{record['gen']}", (record["pid"], record["tick"])
            exit_ = msgspec.convert(exits[key], m.Exit) if key in exits else None
            members = frozenset([member] if key in LIVING else [])
            intent = intents[key] if about else None
            found.append(Sighting(record["svc"], record["gen"], *member, members, exit=exit_, intent=intent))
    return found


def seen_by_tags() -> list[Sighting]:
    """The keeper is dead, too."""
    return [
        Sighting(
            key.rpartition(".")[0], int(key.rpartition(".")[2]), *member, frozenset([member]), sure=False
        )
        for key, member in LIVING.items()
    ]


SOURCES = {
    "keeper": lambda: seen_by_keeper(True),
    "older-keeper": lambda: seen_by_keeper(False),
    "tags": seen_by_tags,
}
each_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
Source = Callable[[], list[Sighting]]


@dataclass(frozen=True)
class Taken:
    """One generation as it is taken over."""

    role: str
    machine: MachineState
    follow: str
    member: tuple[int | None, int | None]


def taken_over(history: RunHistory, service: str) -> list[Taken]:
    floor = history.highest.get(service, 0)
    found = []
    for role, past in lineup(history, service):
        lives = past.pid is not None and alive(past.pid, past.tick)
        known = past.pid is not None and past.intent is not None
        machine, follow = takeover(past, floor, found=known, alive=lives)
        found.append(Taken(role, machine, follow, (past.pid, past.tick)))
    return found


def check(data: bytes, source: Source, folder: Path) -> RunHistory:
    """The invariant: every living process is taken over exactly once, beside none that runs is another one started, and
    a stop ends all of them."""
    path = folder / "journal.jsonl"
    path.write_bytes(data)
    journal = read_journal(path)
    history = read_history(journal.records)
    complete(history, source(), alive)
    attached = []
    for service in {*SERVICES, *history.generations}:
        taken = taken_over(history, service)
        living = [t for t in taken if t.member in LIVING.values()]
        attached += [t.member for t in living]
        for one in living:
            assert one.follow in ("watch", "end"), (service, one)
            stopping = one.machine
            if one.follow == "watch":
                stopping, _ = m.adopted(stopping, 1.0, RULES)
                stopping, _ = m.step(stopping, m.Stop(), 1.0, RULES)
            else:
                stopping, _ = m.step(stopping, m.Spawned(stopping.generation), 1.0, RULES)
            assert stopping.state == "stopping" and not stopping.leader_gone, (service, stopping)
        if living:
            current = [t for t in taken if t.role == "current"]
            assert len(current) == 1 and current[0] in living, (service, taken)
            assert len([t for t in taken if t.role == "incoming"]) <= 1
        newest = max((int(k.rpartition(".")[2]) for k in LIVING if k.startswith(service + ".")), default=0)
        assert history.highest.get(service, 0) >= newest, "its number would be used again"
    assert sorted(attached) == sorted(LIVING.values()), "a process is lost, or taken over twice"
    return history


slow = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def test_the_whole_journal_is_read_without_the_keeper(tmp_path: Path) -> None:
    history = check(WHOLE, list, tmp_path)
    door = {t.role: t.machine.state for t in taken_over(history, "door")}
    assert door == {"current": "ready", "retiring": "stopping"}
    assert history.skipped == [] and not history.rebuilt


@each_source
def test_an_intact_journal_is_not_changed(source: Source, tmp_path: Path) -> None:
    whole, completed = check(WHOLE, list, tmp_path), check(WHOLE, source, tmp_path)
    for service in SERVICES:
        assert taken_over(completed, service) == taken_over(whole, service), service


@each_source
def test_cut_between_lines(source: Source, tmp_path: Path) -> None:
    for count in range(len(LINES) + 1):
        check(b"".join(LINES[:count]), source, tmp_path)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_cut_at_each_byte_it_is_cut_between_two_lines(tmp_path: Path, step: int) -> None:
    """With the test before: whatever byte it is cut at."""
    path = tmp_path / "journal.jsonl"
    for before, line in zip([b"", *LINES], LINES, strict=False):
        for at in range(1, len(line), step):
            path.write_bytes(before + line[:at])
            journal = read_journal(path)
            assert len(journal.records) == before.count(b"\n") and len(journal.damaged) == 1


@each_source
@slow
@given(
    flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=12)
)
def test_flipped_bytes(source: Source, tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, mask in flips:
        data[at] ^= mask
    check(bytes(data), source, tmp_path)


@each_source
@slow
@given(order=st.lists(st.integers(0, len(LINES) - 1), max_size=2 * len(LINES)))
@example(order=list(range(len(LINES)))[::-1])
@example(order=list(range(len(LINES))) * 2)
def test_lines_dropped_repeated_and_moved(source: Source, tmp_path: Path, order: list[int]) -> None:
    check(b"".join(LINES[at] for at in order), source, tmp_path)


@each_source
@slow
@given(
    kept=st.sets(st.integers(0, len(LINES) - 1)),
    noise=st.dictionaries(st.integers(0, len(LINES)), st.binary(max_size=30)),
)
def test_lines_lost_among_noise(
    source: Source, tmp_path: Path, kept: set[int], noise: dict[int, bytes]
) -> None:
    parts = [noise.get(at, b"") + (line if at in kept else b"") for at, line in enumerate(LINES)]
    check(b"".join(parts), source, tmp_path)


VALUES = st.none() | st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=3)


@slow
@given(
    changes=st.dictionaries(st.integers(0, len(LINES) - 1), st.tuples(st.integers(0, 9), VALUES), max_size=8)
)
def test_fields_of_other_types_with_a_valid_checksum(
    tmp_path: Path, changes: dict[int, tuple[int, object]]
) -> None:
    records = [{k: v for k, v in record.items() if k != "crc"} for record in RECORDS]
    for at, (field, value) in changes.items():
        name = list(records[at])[field % len(records[at])]
        if name not in ("pid", "tick", "gen", "svc", "exit") or not isinstance(value, int | str):
            records[at][name] = value
    check(b"".join(checked_line(msgspec.json.encode(r)) for r in records), SOURCES["keeper"], tmp_path)


# --- the lines ------------------------------------------------------------------------------------------


def test_each_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Of a record with a checksum no other value is ever read."""
    path = tmp_path / "journal.jsonl"
    line = LINES[-1]
    true = {k: v for k, v in RECORDS[-1].items() if k != "crc"}
    for at in range(len(line) - 1):
        for mask in (1, 4, 32, 128):
            path.write_bytes(line[:at] + bytes([line[at] ^ mask]) + line[at + 1 :])
            for record in read_journal(path).records:
                assert {k: v for k, v in record.items() if k in true} == true, record


def test_lines_of_older_versions_are_read_and_bad_ones_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    deep = b'{"k":' + b"[" * 100_000
    bad_record = b'{"k":"spawned","svc":"a","gen":1,"pid":"x"}'
    path.write_bytes(b"\n".join([b'{"k":"newer"}', b"", deep, b"7", bad_record, b'{"k":"end"}', b'{"k":"en']))
    journal = read_journal(path)
    assert ([r["k"] for r in journal.records], journal.numbers) == (["newer", "spawned", "end"], (1, 5, 6))
    assert journal.damaged == (3, 4, 7)
    record = RunRecord(read_history(journal.records), journal)
    assert record.damaged == (3, 4, 5, 7) and record.history.ended
    assert record.damage(path) == f"{path}: 4 damaged lines skipped (lines 3, 4, 5, 7)"


def test_the_writer_writes_what_the_reader_checks(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"k":"torn')
    file = LineFile(path, durable=True, checked=True)
    file.append({"k": "end", "why": 'a "quoted", text\n'}).result(60)
    file.close()
    (record,) = read_journal(path).records
    assert record["why"] == 'a "quoted", text\n' and len(record["crc"]) == 8
    path.write_bytes(path.read_bytes().replace(b"quoted", b"quotes"))
    assert read_journal(path).damaged == (1,)


def test_what_is_no_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert set_aside(path) is None and read_journal(path).problem == ""
    for number, make in enumerate((Path.mkdir, lambda p: p.symlink_to("/dev/zero")), 1):
        make(path)
        assert read_journal(path).problem in ("not a regular file but a directory", "a link")
        found = set_aside(path)
        assert found is not None and found[1].name == f"journal.jsonl.set-aside-{number}"
    path.touch()
    assert set_aside(path) is None
    assert procfs.pid_era()
