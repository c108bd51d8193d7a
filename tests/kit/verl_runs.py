"""Whole runs of ``liverl-tui up --no-ui --profile cpu-verl``, each below a state directory of the test.

LIVERL_TEST_VERL_PYTHON names a Python with verl 0.9.1; without it the run builds the profile's own environment.
LIVERL_TEST_VERL_SMOKE names a directory with a smoke model; without it the first run of a module makes one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from kit.runs import ToyRun
from kit.waiting import wait_until
from liverl.config import load_config
from liverl.environments import default_cache_dir, ensure
from liverl.model import Result
from liverl.plan.build import environment_spec
from liverl.plan.spec import Plan
from liverl.procs import procfs
from liverl.rundir.layout import RunDir
from liverl.verl.ray_dir import remove_ray_directory

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
SMOKE = os.environ.get("LIVERL_TEST_VERL_SMOKE", "")
NEEDS_VERL = pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
RUN = 900.0  # seconds of one run: 350 were measured on two cores that others used too
NONE: Mapping[str, str] = MappingProxyType({})
GOING = 5.0  # seconds between the command's end and that of the keeper


def verl_python() -> Path:
    """The Python with verl that runs use, built if it is not there yet."""
    if PYTHON:
        return Path(PYTHON)
    spec = environment_spec(load_config(profile="cpu-verl", env={}).config, "verl")
    return asyncio.run(ensure(spec, default_cache_dir(), lambda text, share: None))


def smoke_directory(factory: pytest.TempPathFactory) -> Path:
    """Where the smoke model is, or where the first run makes it."""
    return Path(SMOKE) if SMOKE else factory.mktemp("smoke") / "made"


@dataclass
class Launch:
    """Runs of the command below one state directory. ``model``: where the first of them makes the smoke model;
    ``venv``: the environment with verl, None for the profile's own."""

    state: Path
    model: Path
    venv: Path | None = Path(PYTHON).parent.parent if PYTHON else None
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    temp: Path = field(
        default_factory=lambda: Path(f"/tmp/lv-{secrets.token_hex(4)}")
    )  # of a launch script's Ray

    def run_dir(self, name: str) -> Path:
        return self.state / "liverl" / "runs" / "liverl" / name

    def output(self, name: str) -> Path:
        return self.state / f"{name}.out"

    def up(
        self,
        name: str,
        *sets: str,
        config: Path | None = None,
        env: Mapping[str, str] = NONE,
        before: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a run. ``config``: a file of the user's; ``env``: further variables; ``before``: a command that runs
        the one behind it."""
        given = [
            *("infrastructure.ray_port=0", "infrastructure.ray_dashboard_port=0"),
            *("infrastructure.litellm_port=0", f"model.model_path=smoke:{self.model}", *sets),
        ]
        if self.venv is not None:
            given.append(f"environments.verl.venv_path={self.venv}")
        words = [word for text in given for word in ("--set", text)]
        file = [] if config is None else ["--config", str(config)]
        words = ["--profile", "cpu-verl", *file, "--name", name, *words]
        return self.start(name, *words, env=env, before=before)

    def own(self, name: str, config: Path, env: Mapping[str, str] = NONE) -> subprocess.Popen[bytes]:
        """Start a run of nothing but a file of the user's; ``env``: further variables."""
        return self.start(name, "--config", str(config), "--name", name, "--yes", env=env)

    def resume(self, name: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start the next attempt of a run; ``before`` as in ``up``."""
        return self.start(name, "--resume", name, before=before)

    def start(
        self, name: str, *words: str, env: Mapping[str, str] = NONE, before: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a run with these words; ``env`` and ``before`` as in ``up``."""
        with self.output(name).open("ab") as out:
            process = subprocess.Popen(
                [*before, str(Path(sys.executable).with_name("liverl-tui")), "up", "--no-ui", *words],
                env={**os.environ, **env, "XDG_STATE_HOME": str(self.state)},
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.processes.append(process)
        self.names.add(name)
        return process

    def end(self) -> None:
        """Leave nothing behind, whatever a test did."""
        for process in self.processes:
            for seconds in (60, 20):
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                    try:
                        process.wait(seconds)
                    except subprocess.TimeoutExpired:
                        pass
            if process.poll() is None:
                process.kill()
                process.wait()
        for name in self.names:
            for pid in remains(self.run_dir(name)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            own = ray_directory(self.run_dir(name))
            if own is not None:  # a run that failed leaves it, for Ray's logs
                remove_ray_directory(Path(own))
        shutil.rmtree(self.temp, ignore_errors=True)


def ray_directory(run_dir: Path) -> str | None:
    """The one that the run's own head was given, if the run has one."""
    if not (run_dir / "plan.json").exists():
        return None
    plan = msgspec.json.decode((run_dir / "plan.json").read_bytes(), type=Plan)
    for service in plan.services:
        if service.name == "ray":
            return service.argv[service.argv.index("--temp-dir") + 1]
    return None


def remains(run_dir: Path) -> dict[int, str]:
    """What still lives of a run, by pid: all with its tag, and Ray's processes, which may have wiped theirs."""
    below = ray_directory(run_dir)
    found = ToyRun(run_dir).tagged()
    for pid, proc in procfs.scan().items():
        words = procfs.arguments(pid)
        if below and not proc.zombie and any(below in word for word in words):
            found[pid] = " ".join(words)
    return found


def directory_is_gone(run_dir: Path) -> None:
    """Ray's, after a run that ended well."""
    own = ray_directory(run_dir)
    assert own is not None and not Path(own).exists()


def nothing_lives(run_dir: Path) -> None:
    """The keeper is the last to go, right after the backend that the command waits for."""
    wait_until(lambda: not remains(run_dir), GOING, f"the end of {remains(run_dir)}")


def finished(process: subprocess.Popen[bytes], look: Callable[[], None] = lambda: None) -> int:
    """The command's exit status; ``look`` is called again and again until it has ended."""

    def ended() -> bool:
        look()
        time.sleep(0.1)  # the machine has two cores, and the run needs both
        return process.poll() is not None

    wait_until(ended, RUN, "the end of the run")
    return process.returncode


def result_of(run_dir: Path) -> Result:
    result = RunDir(run_dir).read_result()
    assert result is not None
    return result
