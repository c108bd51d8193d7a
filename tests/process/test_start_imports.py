"""What a starting program must not have imported: each module costs hundreds of starts, and memory to the end."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from kit.keeper_talk import PROGRAM
from kit.runs import ToyRun, make_run, toy

from liverl.rundir.layout import RunDir

# What nothing needs before there is something to serve, to read or to make.
UNNEEDED = ("aiohttp", "textual", "rich", "yaml", "http", "email", "multiprocessing", "sqlite3", "xml")
# Of the backend: what makes plans and checks them, and what only runs of other kinds have.
OF_OTHERS = (
    *("liverl.config.schema", "liverl.plan.build", "liverl.plan.verl_trainer", "liverl.preflight"),
    *("liverl.daemon.retention", "liverl.observe.trials.trajectory", "liverl.importing", "liverl.offline"),
    *("liverl.external.launch_script", "liverl.external.outputs", "liverl.external.repair", "liverl.hosts"),
    *("liverl.verl.replicas", "liverl.verl.discovery", "liverl.environments"),
    *("liverl.embedded", "liverl.replay", "liverl.watch", "liverl.schemas", "liverl.verl_runtime"),
)
LIGHT = (
    *UNNEEDED,
    "asyncio",
    "subprocess",
    "dataclasses",
    "liverl.config",
    "liverl.causes",
    "liverl.daemon.main",
)
UNUSED = {
    "the backend": (*UNNEEDED, *OF_OTHERS),
    "its keeper": (*LIGHT, "typing", "threading", "inspect", "logging", "liverl"),
    "--help": (*LIGHT, "msgspec", "json", "socket", "liverl.model"),
    "status": LIGHT,
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Callable[[str], set[str]]]:
    """The modules that a program has imported once it has started, by its name in ``UNUSED``."""
    folder = tmp_path_factory.mktemp("start")
    run = make_run(folder, [toy("a", "sleep")])
    try:
        run.start(env={"PYTHONPROFILEIMPORTTIME": "1"})
        run.until("a", "ready")
        yield lambda program: modules_in(output_of(program, run, folder))
    finally:
        run.end()


def output_of(program: str, run: ToyRun, folder: Path) -> str:
    if program == "the backend":
        return RunDir(run.run_dir).backend_log.read_text()
    argv = {
        "its keeper": ["-I", "-S", "-X", "importtime", str(PROGRAM), str(folder / "none")],
        "--help": ["-X", "importtime", "-m", "liverl_tui", "--help"],
        "status": ["-X", "importtime", "-m", "liverl_tui", "status", "--run", str(run.run_dir)],
    }[program]
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=False)
    assert program == "its keeper" or done.returncode == 0, done.stderr
    return done.stderr


def modules_in(text: str) -> set[str]:
    return set(re.findall(r"^import time:.*\|\s*([\w.]+)$", text, re.MULTILINE))


def within(modules: Iterable[str], unused: Iterable[str]) -> list[str]:
    return sorted(name for name in modules if any(f"{name}.".startswith(f"{one}.") for one in unused))


@pytest.mark.parametrize("program", UNUSED)
def test_a_start_imports_nothing_that_it_does_not_use(
    imported: Callable[[str], set[str]], program: str
) -> None:
    modules = imported(program)
    assert len(modules) > 30, "they were counted"
    assert within(modules, UNUSED[program]) == []


def test_each_module_that_is_named_exists() -> None:
    """A module that was moved would be imported unseen."""
    names = sorted({one for unused in UNUSED.values() for one in unused})
    program = "import sys, importlib.util\n"
    program += "print([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_module_and_what_is_in_it_are_found() -> None:
    assert within({"yaml", "yaml.reader", "yamlite", "json"}, ("yaml",)) == ["yaml", "yaml.reader"]


def test_the_first_paint_of_the_interface_waits_for_nothing_that_comes_behind_it() -> None:
    modules = "import sys, liverl_tui.app.app, liverl_tui.data.source; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", modules], capture_output=True, text=True, check=True).stdout
    behind = ("liverl.logs.document", "liverl.logs.query", "liverl_tui.widgets.log.session", "statistics")
    assert not set(behind).intersection(told.split())
