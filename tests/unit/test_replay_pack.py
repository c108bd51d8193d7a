"""What a recording leaves out, and what it says instead: secrets, paths, the host; and which files grow how."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from liverl.model import BackendInfo, Snapshot
from liverl.replay.archive import Recording, read
from liverl.replay.growth import Growth, GrowthWatch
from liverl.replay.pack import Wanted, pack
from liverl.replay.record import Recorder
from liverl.replay.scrub import Scrub
from liverl.replay.tables import FROM_FILES, MEASURED, Table, measured

BEGIN = 1_795_392_785.0
KEY = "sk-liverl-0123456789abcdefghij"
TOKEN = "a token without any form"


def write(path: Path, text: str, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory as a run leaves it, with secrets in places where they must not be."""
    path = tmp_path / "liverl" / "first"
    write(path / "secrets" / "run_key", KEY + "\n", BEGIN)
    write(path / "secrets" / "other", TOKEN, BEGIN)
    write(
        path / "attempt_001/logs/trainer.1.log",
        f"key {KEY}\nother {TOKEN}\nin {path}/trials on box7\n",
        BEGIN,
    )
    write(path / "attempt_001/logs/trainer.1.log.idx", "0 1\n", BEGIN)
    write(path / "checkpoints/global_step_1/data.json", "{}", BEGIN)
    write(path / "trials/step_0001/a-1/litellm-trajectory.jsonl", '{"at":1}\n', BEGIN)
    write(path / "trials/step_0001/a-1/agent/trajectory.json", "{}", BEGIN)
    write(path / "trials/step_0002/b-2/agent/trajectory.json", "{}", BEGIN)
    write(path / "trials/step_0002/b-2/sandbox/README.md", "x", BEGIN)
    write(path / "trainer.json", '{"step":1}', BEGIN)
    write(path / "snapshot.json", "{}", BEGIN)
    return path


def recorded(run: Path, out: Path, tables: dict[str, str] | None = None) -> Path:
    """``run`` as recorded without a backend."""
    recorder = Recorder(run, out)
    recorder.look(BEGIN + 1.0)
    recorder.finish()
    for name, text in (tables or {}).items():
        (out / "tables" / f"{name}.jsonl").write_text(text)
    origin = json.loads((out / "origin.json").read_text())
    (out / "origin.json").write_text(json.dumps({**origin, "host": "box7"}))
    return out


def packed(source: Path, begin: float = BEGIN, end: float = 4e9, **more: int) -> Recording:
    pack(source, source / "r.tar.xz", Wanted("shown", begin, end, **more))
    return read(source / "r.tar.xz")


def test_every_field_of_a_snapshot_is_measured_or_rebuilt() -> None:
    fields = set(Snapshot.__struct_fields__)
    assert fields >= FROM_FILES
    assert set(MEASURED) == fields - FROM_FILES
    assert {"gpus", "services", "replicas", "proxy", "host"} <= set(MEASURED)
    backend = BackendInfo(pid=1, started_at=1.0, host="h", version="1")
    snapshot = Snapshot(1, 2.0, "a/b", "/r", "running", "", 1, "managed", backend, 1.0)
    assert set(measured(snapshot)) == set(MEASURED)


def test_secrets_are_nowhere_in_a_recording(run: Path, tmp_path: Path) -> None:
    source = recorded(run, tmp_path / "out", {"phase": f'{{"at":1.0,"value":"Bearer {KEY}"}}\n'})
    for path in source.rglob("*"):
        if path.is_file() and path.parent.name != "tables":
            assert KEY not in path.read_text() and TOKEN not in path.read_text(), path
    recording = packed(source)
    log = recording.files["attempt_001/logs/trainer.1.log"].decode()
    assert KEY not in log and TOKEN not in log
    assert KEY not in str(recording.tables["phase"].at(1.0))


def test_the_recording_machine_is_not_named(run: Path, tmp_path: Path) -> None:
    recording = packed(
        recorded(run, tmp_path / "out", {"phase": '{"at":1.0,"value":"on box7, not box70"}\n'})
    )
    log = recording.files["attempt_001/logs/trainer.1.log"].decode()
    assert log.splitlines()[2] == "in /srv/runs/demo/shown/trials on gpu-node"
    assert recording.tables["phase"].at(1.0) == "on gpu-node, not box70"
    assert str(tmp_path) not in "".join(data.decode() for data in recording.files.values())


def test_only_what_the_replay_reads_is_packed(run: Path, tmp_path: Path) -> None:
    recording = packed(recorded(run, tmp_path / "out"))
    assert set(recording.files) == {
        "attempt_001/logs/trainer.1.log",
        "trials/step_0001/a-1/litellm-trajectory.jsonl",
        "trials/step_0002/b-2/agent/trajectory.json",  # the only record of that trial
    }
    assert {row.path for row in recording.growth if row.text is not None} == {"trainer.json"}


def test_trials_of_earlier_steps_can_be_left_out(run: Path, tmp_path: Path) -> None:
    recording = packed(recorded(run, tmp_path / "out"), from_step=2)
    assert not [path for path in recording.files if path.startswith("trials/step_0001")]
    assert [path for path in recording.files if path.startswith("trials/step_0002")]


def test_what_comes_after_the_end_is_left_out(run: Path, tmp_path: Path) -> None:
    source = recorded(
        run, tmp_path / "out", {"step": '{"at":1.0,"value":1}\n{"at":1795392800.0,"value":2}\n'}
    )
    late = Growth(BEGIN + 50.0, "attempt_001/logs/trainer.1.log", 10_000)
    with open(source / "growth.jsonl", "a") as file:
        file.write(json.dumps({"at": late.at, "path": late.path, "size": late.size}) + "\n")
    recording = packed(source, end=BEGIN + 10.0)
    assert max(row.at for row in recording.growth) <= BEGIN + 10.0
    assert [row.value for row in recording.tables["step"].rows] == [1]


def test_sizes_are_of_the_packed_content_in_whole_lines(run: Path, tmp_path: Path) -> None:
    name = "attempt_001/logs/trainer.1.log"
    content = (run / name).read_bytes()
    source = recorded(run, tmp_path / "out")
    first = content.index(b"\n") + 1
    rows = [
        {"at": BEGIN, "path": name, "size": first + 3},
        {"at": BEGIN + 1, "path": name, "size": len(content)},
    ]
    (source / "growth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recording = packed(source)
    shown = recording.files[name]
    assert [row.size for row in recording.growth] == [shown.index(b"\n") + 1, len(shown)]


def test_a_watch_notes_growth_and_versions(run: Path) -> None:
    watch = GrowthWatch(run)
    first = {row.path: row for row in watch.look(BEGIN + 5.0)}
    assert first["trainer.json"].text == '{"step":1}' and first["trainer.json"].at == BEGIN
    assert not [path for path in first if "secrets" in path or "checkpoints" in path or "sandbox" in path]
    assert not {"snapshot.json", "attempt_001/logs/trainer.1.log.idx"} & first.keys()
    assert watch.look(BEGIN + 6.0) == []
    write(run / "trainer.json", '{"step":2}', BEGIN + 7.0)
    write(run / "trials/step_0001/a-1/litellm-trajectory.jsonl", '{"at":1}\n{"at":2}\n', BEGIN + 8.0)
    assert watch.look(BEGIN + 9.0) == [
        Growth(BEGIN + 7.0, "trainer.json", text='{"step":2}'),
        Growth(BEGIN + 8.0, "trials/step_0001/a-1/litellm-trajectory.jsonl", 18),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/root/.cache/x", "/home/user/.cache/x"),
        ("--dir=/tmp/a", "--dir=/scratch/a"),
        ('"/work/venv/bin/python"', '"/srv/venv/bin/python"'),
        ("/home/jane.doe/x", "/home/user/x"),
        ("file:///work/a", "file:///srv/a"),
        ("ray at 192.168.7.20:6379, http://127.0.0.1:80", "ray at 10.0.0.1:6379, http://127.0.0.1:80"),
        ("~/work/a and a/tmp/b", "~/work/a and a/tmp/b"),
        ("vm and vm.max_map_count, kvm", "gpu-node and gpu-node.max_map_count, kvm"),
    ],
)
def test_paths_and_names_are_neutral(text: str, shown: str) -> None:
    assert Scrub("shown", "/data/runs/liverl/first", "vm")(text) == shown


def test_a_table_holds_a_value_until_the_next_row() -> None:
    table = Table.read(b'{"at":1.0,"value":"a"}\n{"at":3.0,"value":"b"}\n{"at":4.0,"val')
    assert [table.at(time) for time in (0.0, 1.0, 2.9, 3.0, 9.0)] == ["a", "a", "a", "b", "b"]
    assert Table([]).at(1.0) is None
