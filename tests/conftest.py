"""What holds for every test."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from kit.compiled import compile_share
from kit.runs import ToyRun

# A shell that starts a job in the background has it ignore SIGINT, and what is ignored is inherited: the
# commands under test would not hear a Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The checks of a model id ask the hub: no test does, unless it is one of its own.
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")

USUAL = "not slow"  # marks of pyproject.toml
# Files of drills that take longest by the clock (``tests/bench/cpu_of_tests.py``): they come first, and tests/stack
# with its proxies next. Begun last, one of them would have a worker to itself at the end, while others had none.
_LONG = ("control_cli", "trust", "faults", "embedded_trainer", "drills", "lists", "watch", "busy_backend")
_LONG += ("checkpoint_commands", "hostile_text", "sessions_service", "archive", "exit_0")
_LONG += ("environments_build", "verl_endings", "config_uses_derived")
_NUMBERS = itertools.count()  # of folders in `states`
_OF_PROCESSES = ("process", "stack")  # folders of which only files with the mark ``first`` are no drills


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "store how the screens look now, in tests/ui/pictures"
    parser.addoption("--update-pictures", action="store_true", help=help)
    help = "make the generated parts of docs anew"
    parser.addoption("--update-documents", action="store_true", help=help)
    help = "drills, mostly of real processes: first = one file of each kind (without other arguments), "
    help += "rest = those that this leaves out, all = all (where files or marks are named)"
    parser.addoption("--drills", choices=("first", "rest", "all"), help=help)


def pytest_configure(config: pytest.Config) -> None:
    """Who names nothing gets an answer within minutes."""
    if config.option.drills is None:  # a worker has the answer of the process that started it
        named = (
            config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.markexpr != USUAL
        )
        config.option.drills = "all" if named else "first"
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None and config.option.drills != "all":
        number, of = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        rest = config.option.drills == "rest"
        compile_share(config, number, of, lambda path: _may_have_any(path, rest=rest), backwards=rest)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file of which nothing would be left: it takes seconds of each worker."""
    if config.option.drills == "all" or not collection_path.match("test_*.py"):
        return None
    return None if _may_have_any(collection_path, rest=config.option.drills == "rest") else True


def _may_have_any(path: Path, *, rest: bool) -> bool:
    """Whether a file of tests may have one that ``--drills`` does not leave out."""
    of_processes = path.parent.name in _OF_PROCESSES
    if of_processes == rest:
        return True
    return (b"mark.first" if of_processes else b"mark.drill") in path.read_bytes()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what ``--drills`` does."""
    drills = config.option.drills
    if drills == "all":
        return
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (chosen if is_rest(item) == (drills == "rest") else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(chosen, key=_turn) if drills == "rest" else chosen


def _turn(item: pytest.Item) -> int:
    """When the file of a test has its turn: the longest first. The order is otherwise kept."""
    name = item.path.stem.removeprefix("test_")
    if name in _LONG:
        return _LONG.index(name)
    return len(_LONG) + (item.path.parent.name != "stack")


def is_rest(item: pytest.Item) -> bool:
    """Whether a test is left out where nothing is named."""
    if item.path.parent.name in _OF_PROCESSES:
        return item.get_closest_marker("first") is None
    return item.get_closest_marker("drill") is not None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Ten thousand tests are made of millions of objects that live to the end: looking for garbage among them takes
    seconds of each worker while they are made, and again in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside those of the tests: pytest lists all of them to number a new one."""
    return tmp_path_factory.mktemp("states")


@pytest.fixture(autouse=True)
def state_home(states: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index of live runs must not be the user's. The folder is made by what first writes there: most tests do not,
    and there are twenty thousand."""
    state = states / str(next(_NUMBERS))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


@pytest.fixture
def own_state(state_home: Path) -> Path:
    """The same folder, made."""
    state_home.mkdir(mode=0o700)
    return state_home


@pytest.fixture
def ending() -> Iterator[Callable[[ToyRun], ToyRun]]:
    """Registers a run, so that nothing of it outlives the test, however that ends."""
    runs: list[ToyRun] = []

    def register(run: ToyRun) -> ToyRun:
        runs.append(run)
        return run

    yield register
    for run in runs:
        run.end()
