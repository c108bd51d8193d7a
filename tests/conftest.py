"""What holds for every test."""

from __future__ import annotations

import gc
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from kit.runs import ToyRun

# A shell that starts a job in the background has it ignore SIGINT, and what is ignored is inherited: the
# commands under test would not hear a Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "store how the screens look now, in tests/ui/pictures"
    parser.addoption("--update-pictures", action="store_true", help=help)
    help = "make the generated parts of docs anew"
    parser.addoption("--update-documents", action="store_true", help=help)


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
def own_state(states: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The index of live runs must not be the user's."""
    state = Path(tempfile.mkdtemp(dir=states))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


@pytest.fixture(autouse=True)
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of a model id ask the hub: no test does, unless it is one of its own."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


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
