"""The interface as a person meets it: a real terminal, the real program, real backends that are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.runs import ToyRun, make_run, toy
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

import liverl
from liverl.plan.spec import RestartPolicy
from liverl.procs import procfs
from liverl.rundir.layout import RunDir, read_backend

pytestmark = pytest.mark.first

CLI = (sys.executable, "-m", "liverl_tui.cli.main")
TOY_CLI = (sys.executable, str(Path(__file__).with_name("cli_toy.py")))


@pytest.fixture
def run(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> ToyRun:
    """A live run of one sleeping service."""
    made = ending(make_run(tmp_path, [toy("worker", "sleep")]))
    made.start()
    made.until("worker", "ready")
    return made


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens terminals with a program in them; nothing of it outlives the test."""
    opened: list[Terminal] = []

    def go(
        *arguments: object, program: tuple[str, ...] = CLI, size: tuple[int, int] = (100, 30), **env: str
    ) -> Terminal:
        argv = [*program, *map(str, arguments)]
        opened.append(Terminal(argv, size=size, env=clean_environment(**env), cwd=tmp_path))
        return opened[-1]

    yield go
    for one in opened:
        one.close()
    for file in tmp_path.rglob("backend.json"):  # of the toys that were started through the program
        record = read_backend(file.parent)
        if record is not None and procfs.alive(record.pid, record.tick):
            os.kill(record.pid, signal.SIGKILL)


def alive(run: ToyRun) -> bool:
    """Whether its backend and its service are those that were started."""
    snapshot = run.snapshot()
    return snapshot.state == "running" and snapshot.backend.pid == run.backends[-1]


# -- leaving, in every way there is


def test_leaving_is_asked_about_and_never_ends_the_run(
    run: ToyRun, terminal: Callable[..., Terminal]
) -> None:
    first = terminal("attach", "--run", run.run_dir)
    first.wait_for("tests/toy")
    first.wait_for("live")
    first.press("ctrl+c")
    first.wait_for("Quit?")
    assert alive(run)
    first.press("escape")
    first.wait_for(lambda text: "Quit?" not in text)
    first.press("q")
    first.wait_for("Quit?")
    first.press("enter")
    assert first.wait() == 0
    assert f"to attach again: liverl-tui attach {run.run_dir}" in first.text.replace("\n", "")
    assert alive(run)
    again = terminal()  # the only live run
    again.wait_for("live")
    again.hang_up()  # as ssh does when the network goes
    again.wait()
    assert alive(run)


def test_it_fits_a_window_that_changes(run: ToyRun, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("attach", size=(120, 40))
    shown.wait_for("worker")
    for size in ((80, 24), (200, 50), (40, 10), (100, 30)):
        shown.resize(*size)

        def fits(text: str, rows: int = size[1]) -> bool:
            lines = text.split("\n")
            return lines[0].startswith("tests/toy") and "? help" in lines[rows - 1]

        shown.wait_for(fits, what=f"header and key bar at {size}")
    assert shown.running


# -- what happens to the backend meanwhile


def test_a_killed_backend_is_told_and_brought_back(run: ToyRun, terminal: Callable[..., Terminal]) -> None:
    worker = run.service("worker").pid
    shown = terminal("attach", "--run", run.run_dir)
    shown.wait_for("live")
    run.kill_backend()
    shown.wait_for("backend died")
    assert "tests/toy" in shown.lines[0]
    assert any("worker" in line for line in shown.lines)  # what is known stays
    shown.press("U")
    shown.wait_for(lambda text: " live " in text.split("\n")[0], what="live again")
    run.backends.append(run.snapshot().backend.pid)
    assert run.service("worker").pid == worker
    shown.press("q")
    shown.wait_for("Quit?")
    shown.press("d")
    assert shown.wait() == 0


def test_the_end_of_the_run_is_shown_and_its_exit_code_is_ours(
    tmp_path: Path, ending: Callable[[ToyRun], ToyRun], terminal: Callable[..., Terminal]
) -> None:
    trainer = toy("trainer", "sleep", kind="trainer", restart=RestartPolicy("never"))
    run = ending(make_run(tmp_path, [trainer]))
    run.start()
    shown = terminal("attach")
    shown.wait_for("live")
    pid = run.until("trainer", "ready").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.result().exit_code == 137
    shown.wait_for("ended")
    shown.press("q")
    assert shown.wait() == 137
    dead = terminal("attach", "--run", run.run_dir)  # from its directory, later
    dead.wait_for("ended")
    dead.press("q")
    assert dead.wait() == 137
    lines = terminal("attach", "--run", run.run_dir, "--no-ui")
    assert lines.wait() == 137
    assert "has ended: failed, exit code 137" in lines.text
    none = terminal("attach", "--run-root", tmp_path)
    assert none.wait() == 4
    assert f"liverl-tui attach --run {run.run_dir}" in none.text.replace("\n", "")


@pytest.mark.parametrize("away", [True, False])
def test_the_desktop_is_notified_of_the_end_by_a_terminal_that_nobody_looks_at(
    run: ToyRun, terminal: Callable[..., Terminal], away: bool
) -> None:
    shown = terminal("attach")
    shown.wait_for("live")
    shown.send("\x1b[O" if away else "\x1b[I")  # as terminals tell that they lose and get the focus
    shown.press("?")  # what was sent before it has been read once this is answered
    shown.wait_for("next hit")
    shown.press("escape")
    run.command("stop")
    run.result()
    shown.wait_for("ended")
    if away:  # it may be told a moment after it is shown
        shown.wait_for(lambda _: b"\x1b]9;liverl-tui: tests/toy: run stopped" in shown.raw)
    else:
        assert b"\x1b]9;" not in shown.raw


def test_a_run_whose_backend_died_before(run: ToyRun, terminal: Callable[..., Terminal]) -> None:
    run.kill_backend()
    shown = terminal("attach", "--run", run.run_dir, "--readonly")
    shown.wait_for("died")
    shown.press("U")
    shown.wait_for("read-only")
    shown.press("q")
    assert shown.wait() == 0
    assert RunDir(run.run_dir).read_result() is None
    assert not procfs.alive(run.backends[-1], None)  # nobody has started it


# -- starting from it


def run_of(state: Path, name: str) -> Path:
    return state / "liverl" / "runs" / "liverl" / name


def test_a_run_is_started_and_left_behind(own_state: Path, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("up", "--name", "u", program=TOY_CLI)
    run_dir = run_of(own_state, "u")
    shown.wait_for("live")
    assert shown.lines[0].startswith("liverl/u")
    shown.press("D")
    assert shown.wait() == 0
    record = read_backend(run_dir)
    assert record is not None
    try:
        assert liverl.snapshot(run_dir).state == "running"
    finally:
        os.kill(record.pid, signal.SIGKILL)


def test_a_run_that_does_not_start_is_explained_after_the_interface(
    own_state: Path, terminal: Callable[..., Terminal]
) -> None:
    shown = terminal("up", "--name", "u", program=TOY_CLI, TOY_REFUSES="1")
    assert shown.wait() == 1
    assert shown.lines[0] == "liverl-tui: the toy refuses to start"


def test_its_theme_is_checked_before_anything_is_started(
    own_state: Path, terminal: Callable[..., Terminal]
) -> None:
    for more in ((), ("--detach",)):
        wrong = terminal("up", "--name", "t", "--set", "ui.theme=drak", *more, program=TOY_CLI)
        assert wrong.wait() == 2
        assert "--set: ui.theme: no theme 'drak'; did you mean dark?" in wrong.text
    assert not run_of(own_state, "t").exists()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("theme", "drak", "no theme 'drak'; did you mean dark?"),
        ("keys", "{app.metrix: x}", "there is no such entry; did you mean"),
    ],
)
def test_a_run_is_shown_whatever_its_section_ui_says(
    run: ToyRun, terminal: Callable[..., Terminal], key: str, value: str, told: str
) -> None:
    """As a version that checked less left it. What is told of each key is in ``tests/unit/test_cli_settings.py``."""
    (run.run_dir / "config.yaml").write_text(f"ui:\n  {key}: {value}\n")
    shown = terminal("attach", "--run", run.run_dir, size=(240, 50))
    shown.wait_for("tests/toy")
    shown.wait_for(told)
    shown.press("q")
    shown.wait_for("Quit?")
    shown.press("d")
    assert shown.wait() == 0


# -- without it


def test_a_terminal_that_can_do_nothing_gets_sentences(
    run: ToyRun, terminal: Callable[..., Terminal]
) -> None:
    shown = terminal("attach", TERM="dumb")
    shown.wait_for("run running: serving")
    run.command("stop", now=True)
    assert shown.wait() == 0
    assert "run stopped" in shown.text
    assert b"\x1b" not in shown.raw


def test_a_table_that_is_drawn_again_in_its_place(run: ToyRun, terminal: Callable[..., Terminal]) -> None:
    shown = terminal("status", "--watch", size=(80, 24))
    shown.wait_for("● worker")
    assert shown.lines[0].startswith("tests/toy  running")
    before = shown.bytes
    uptime = shown.lines[0]
    shown.wait_for(lambda text: text.split("\n")[0] != uptime, what="the clock goes on")
    assert shown.bytes - before < 1000  # not the whole of it
    shown.resize(60, 5)
    shown.wait_for("more lines")
    assert shown.lines[0].startswith("tests/toy  running")
    shown.resize(80, 24)
    shown.wait_for("● worker")
    shown.press("ctrl+c")
    assert shown.wait() == 130
    assert "Traceback" not in shown.text
    ended = terminal("status", "--watch", size=(80, 24))
    ended.wait_for("● worker")
    run.command("stop", now=True)
    assert ended.wait() == 0
    wait_until(lambda: RunDir(run.run_dir).read_result())
