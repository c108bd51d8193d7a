"""The packaged recording: what is in it, and that its state is rebuilt from files, tables and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from liverl.diagnose.tracker import Rule, Window
from liverl.logs.times import TimeIndex
from liverl.model import Snapshot, Symptom
from liverl.replay import player as player_module
from liverl.replay.archive import Recording, RecordingError, read
from liverl.replay.clock import ReplayClock
from liverl.replay.player import Player
from liverl.replay.tables import Row, Table
from liverl.replay.timeline import changes
from liverl_tui.cli.demo import PACKAGED, RECORDINGS

NOW = 1_500_000_000.0  # Unix time at which the replay is shown
PACKAGE = Path(str(files("liverl.replay"))) / "recordings" / PACKAGED


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read(PACKAGE)


def play(recording: Recording, folder: Path) -> Player:
    return Player(recording, folder, ReplayClock(recording.about.begin, NOW))


@pytest.fixture(scope="module")
def begun(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> tuple[Player, Snapshot]:
    player = play(recording, tmp_path_factory.mktemp("demo"))
    return player, player.begin()


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_packaged_recording_is_small_and_names_no_machine(name: str) -> None:
    package = PACKAGE.with_name(f"{name}.tar.xz")
    recording = read(package)
    assert recording.about.name == name
    assert package.stat().st_size < 300_000
    everything = [
        *recording.files.items(),
        *((row.path, (row.text or "").encode()) for row in recording.growth),
    ]
    everything += [
        (name, msgspec.json.encode(row.value)) for name, t in recording.tables.items() for row in t.rows
    ]
    for path, data in everything:
        assert not re.search(rb"(?<![\w.~-])/(tmp|work|root)\b", data), path
        assert not re.search(rb"\bsk-liverl-[\w-]{8,}|\b(hf|ghp)_[A-Za-z0-9]{16,}", data), path
        assert not path.startswith("secrets"), path
    hosts = {row.value["host"] for row in recording.tables["backend"].rows}
    assert hosts == {"gpu-node"}
    assert recording.about.end - recording.about.begin >= 20.0


def test_the_first_picture_shows_a_run_on_two_gpus(begun: tuple[Player, Snapshot]) -> None:
    player, snapshot = begun
    assert snapshot.state == "running" and snapshot.run == "demo/wrong-parser"
    assert [gpu.name for gpu in snapshot.gpus] == ["NVIDIA H200", "NVIDIA H200"]
    assert all(gpu.memory_used and "vllm_server" in gpu.owner for gpu in snapshot.gpus)
    assert {"ray", "proxy", "trainer"} <= {service.kind for service in snapshot.services}
    assert snapshot.replicas.ready == snapshot.replicas.listed == 2
    assert snapshot.trials.running > 0
    assert (player.run.path / "config.yaml").is_file()


def test_the_parser_is_found_wrong(recording: Recording, tmp_path: Path) -> None:
    player = play(recording, tmp_path)
    player.begin()
    later = player.state(recording.about.begin + 12.0)
    assert later.trials.zero_tool_calls > later.trials.total // 2
    assert "zero_tool_calls" in [symptom.id for symptom in later.symptoms]
    assert later.step is not None and later.metrics is not None
    (found,) = (symptom for symptom in later.symptoms if symptom.id == "zero_tool_calls")
    assert found.patch == {"model.tool_parser": "qwen3_coder"} and "parser is hermes" in found.title
    last = player.state(player.end)
    assert last.state == "running" and last.step == 5
    assert len(last.rewards.newest) == 5


def test_the_reward_rises_and_the_run_ends(tmp_path: Path) -> None:
    recording = read(PACKAGE.with_name("learns.tar.xz"))
    player = play(recording, tmp_path)
    first = player.begin()
    assert [gpu.name for gpu in first.gpus] == ["NVIDIA H200", "NVIDIA H200"]
    last = player.state(player.end)
    assert last.step == last.total_steps == 16 and last.state == "done"
    assert {service.state for service in first.services if service.kind == "environment"} == {"ready"}
    assert {service.state for service in last.services} == {"stopped"}
    rewards = last.rewards.newest
    assert len(rewards) == 16 and sum(rewards[-5:]) > 1.3 * sum(rewards[:5])


def test_what_the_run_did_in_a_step_whose_trials_are_not_recorded_is_as_it_was_seen(tmp_path: Path) -> None:
    """The recording has the trials of the last two steps: of the others it does not follow that none began."""
    recording = read(PACKAGE.with_name("learns.tar.xz"))
    player = play(recording, tmp_path)
    seen = {player.begin().phase}
    seen |= {
        player.state(player.about.begin + at).phase
        for at in range(60, int(player.end - player.about.begin), 2)
    }
    early = {
        words.partition(": ")[2] for words in seen if words.startswith(("step 5/", "step 9/", "step 12/"))
    }
    assert any("/128 trials" in words for words in early) and "policy update" in early
    assert "sending weights" not in early


def test_times_are_those_of_the_replay(begun: tuple[Player, Snapshot]) -> None:
    player, snapshot = begun
    assert all(0.0 <= snapshot.at - head.updated_at < 60.0 for head in snapshot.trials.newest)
    assert snapshot.at == NOW
    assert 0.0 < snapshot.at - snapshot.started_at < 86_400.0
    assert all(0.0 <= snapshot.at - service.since < 86_400.0 for service in snapshot.services)
    for path in player.run.path.rglob("*.log"):
        assert path.stat().st_mtime <= NOW
        assert float(path.with_name(path.name + ".idx").read_text().split()[-1]) <= NOW


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_line_of_a_log_has_the_time_at_which_it_was_recorded(name: str, tmp_path: Path) -> None:
    """Also of lines that came within a second: or two logs would not be merged in their order."""
    recording = read(PACKAGE.with_name(f"{name}.tar.xz"))
    clock = ReplayClock(recording.about.begin, NOW)
    player = Player(recording, tmp_path, clock)
    player.begin()
    player.state(player.end)
    written: dict[str, list[float]] = {}  # log -> when each of its bytes was
    for change in changes(recording.growth, recording.files, recording.about.begin):
        if change.path.endswith(".log") and change.data and change.at <= player.end:
            written.setdefault(change.path, []).extend([clock.shown(change.at)] * len(change.data))
    assert written
    for path, times in written.items():
        index = TimeIndex(player.run.path / path)
        for offset in {0, len(times) - 1, *range(0, len(times), 997)}:
            assert index.time_at(offset) == pytest.approx(times[offset], abs=0.11), (path, offset)


def test_the_run_goes_on_and_the_files_with_it(recording: Recording, tmp_path: Path) -> None:
    player = play(recording, tmp_path)
    first = player.begin()
    sizes = {path: path.stat().st_size for path in player.run.path.rglob("*.log")}
    last = player.state(player.end)
    assert (last.step or 0) > (first.step or 0)
    assert last.trials.total > first.trials.total and last.seq > first.seq
    assert last.at == pytest.approx(NOW + player.end - recording.about.begin)
    assert any(path.stat().st_size > size for path, size in sizes.items())
    assert {path.name for path in tmp_path.iterdir()} == {"demo"}


def test_a_new_rule_shows_in_an_old_recording(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def new(window: Window) -> Iterator[Symptom]:
        yield Symptom("new", "warning", f"{window.now.trials.total} trials", "", "")

    monkeypatch.setattr(player_module, "RULES", (Rule(new),))
    (symptom,) = play(recording, tmp_path).begin().symptoms
    assert symptom.id == "new"


def test_tables_of_another_form_are_refused(recording: Recording, tmp_path: Path) -> None:
    tables = {**recording.tables, "services": Table([Row(1.0, [{"name": 3}])])}
    broken = Recording(recording.about, tables, recording.growth, recording.files)
    with pytest.raises(RecordingError, match="its tables are not of this version"):
        play(broken, tmp_path).begin()


@pytest.mark.parametrize("absent", [False, True], ids=["empty", "absent"])
def test_a_field_that_an_older_recording_does_not_have_keeps_its_default(
    recording: Recording, tmp_path: Path, absent: bool
) -> None:
    tables = {name: table for name, table in recording.tables.items() if name != "changes"}
    tables = tables if absent else {**tables, "changes": Table([])}
    older = Recording(recording.about, tables, recording.growth, recording.files)
    assert play(older, tmp_path).begin().changes == ()


def test_an_alert_began_when_it_did_however_the_recording_was_played(
    recording: Recording, tmp_path: Path
) -> None:
    """After a jump it was of the moment of the jump: `for 6s` of what another look said `for 22s`."""
    begin, end = recording.about.begin, recording.about.end
    slowly, at_once = play(recording, tmp_path / "slowly"), play(recording, tmp_path / "at_once")
    slowly.begin(), at_once.begin()
    for second in range(1, int(end - begin)):
        slowly.state(begin + second)
    (one,), (other,) = slowly.state(end).symptoms, at_once.state(end).symptoms
    assert one.since == other.since < NOW + 5.0
