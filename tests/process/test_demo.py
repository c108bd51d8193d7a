"""``liverl-tui demo`` on a real terminal, and a live run that is recorded, packed and played."""

from __future__ import annotations

import io
import lzma
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from liverl.procs import procfs
from liverl.replay.archive import read
from liverl.replay.clock import ReplayClock
from liverl.replay.player import Player


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens the demo in terminals of 80x24; nothing of it outlives the test."""
    opened: list[Terminal] = []
    (tmp_path / "tmp").mkdir()

    def go(*arguments: object) -> Terminal:
        env = clean_environment(
            TERM="xterm",
            XDG_STATE_HOME=str(tmp_path / "state"),
            TMPDIR=str(tmp_path / "tmp"),
            PATH="/nowhere",
        )
        argv = [sys.executable, "-m", "liverl_tui.cli.main", "demo", *map(str, arguments)]
        opened.append(Terminal(argv, size=(80, 24), env=env, cwd=tmp_path))
        return opened[-1]

    yield go
    for one in opened:
        one.close()


def text(terminal: Terminal) -> str:
    return "\n".join(terminal.lines)


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp").glob("liverl-demo-*"))


def test_the_demo_runs_in_a_plain_terminal_and_leaves_nothing(
    demo: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = demo()
    parts = (
        "demo/wrong-parser",
        "▶ demo",
        "Replicas",
        "First start",
    )  # a slow machine shows a part of the first paint
    wait_until(lambda: all(part in text(terminal) for part in parts), what="the first paint")
    (folder,) = folders(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    terminal.press("r")
    wait_until(lambda: "this is a recorded run" in text(terminal), what="the toast")
    terminal.press("q")
    assert terminal.wait() == 0
    assert folders(tmp_path) == []
    kept = [path.relative_to(tmp_path) for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert kept == [Path("state/liverl/interface/hints-shown")]


def test_a_terminated_demo_leaves_nothing(demo: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = demo()
    wait_until(lambda: "demo/wrong-parser" in text(terminal), what="the first paint")
    (folder,) = folders(tmp_path)
    os.kill(int(folder.name.split("-")[2]), signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert folders(tmp_path) == []


def test_what_a_killed_demo_left_is_removed_by_the_next(
    demo: Callable[..., Terminal], tmp_path: Path
) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    left = tmp_path / "tmp" / f"liverl-demo-{gone.pid}-abc"
    (left / "demo").mkdir(parents=True)
    alive = tmp_path / "tmp" / f"liverl-demo-{os.getpid()}-abc"
    alive.mkdir()
    terminal = demo("--run", "missing.tar.xz")
    assert terminal.wait() == 2
    assert "missing.tar.xz: No such file or directory" in text(terminal)
    assert folders(tmp_path) == [alive]


def test_without_a_terminal_the_demo_says_what_it_needs(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "liverl_tui.cli.main", "demo"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=tmp_path
    )
    assert done.returncode == 2 and "demo needs a terminal" in done.stderr


def test_a_live_run_is_recorded_packed_and_played(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> None:
    run = ending(make_run(tmp_path, [toy("worker", "sleep")]))
    run.start()
    run.until("worker", "ready")
    out, archive = tmp_path / "out", tmp_path / "r.tar.xz"
    module = [sys.executable, "-m", "liverl.replay.record", str(run.run_dir), "--out", str(out)]
    recorder = subprocess.Popen([*module, "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
    try:
        wait_until((out / "tables" / "services.jsonl").exists, what="a recorded row")
        run.command("stop")
        said, _ = recorder.communicate(timeout=90)
    finally:
        recorder.kill()
    assert recorder.returncode == 0, said
    pack = [
        sys.executable,
        "-m",
        "liverl.replay.pack",
        str(out),
        "--out",
        str(archive),
        "--name",
        "toy",
        "--begin",
        "0",
    ]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
    recording = read(archive)
    player = Player(recording, tmp_path / "played", ReplayClock(recording.about.begin, 2e9))
    first, last = player.begin(), player.state(player.end)
    assert first.state == "running" and first.services[0].state == "ready"
    assert last.result is not None and last.state == "stopped" and last.services[0].state == "stopped"
    assert str(tmp_path).encode() not in b"".join(recording.files.values())
    assert not procfs.alive(recorder.pid, None)


HOSTILE = {
    "nested deeply": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b""),
    "a million rows": (b"", b'{"at":1000000001.0,"path":"a.log","text":"x"}\n' * 1_000_000),
    "no time": (b"", b'{"at":1e308,"path":"a.log","text":"x"}\n'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_recording_that_cannot_be_played_ends_in_words(
    demo: Callable[..., Terminal], tmp_path: Path, name: str
) -> None:
    about, growth = HOSTILE[name]
    about = about or b'{"name":"first","begin":1000000000,"end":1000000100,"run":"/srv/runs/demo/first"}'
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for member, data in (("recording.json", about), ("growth.jsonl", growth)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (tmp_path / "r.tar.xz").write_bytes(lzma.compress(raw.getvalue(), preset=0))
    terminal = demo("--run", tmp_path / "r.tar.xz")
    assert terminal.wait() == 2
    said = "".join(line.strip() for line in terminal.lines)
    assert "is no recording that can be played" in said and "Traceback" not in said
    assert folders(tmp_path) == []
