"""Rows that nobody can train are refused before anything starts, also if verl's environment is built on first use.

A small package stands for verl's environment: it reads files that hold JSON behind parquet's first bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.runs import ToyRun
from kit.waiting import wait_until

from liverl.preflight.record import read
from liverl.preflight.verl import MODULES
from liverl.rundir.layout import RunDir
from liverl.util.parquet import parquet

ARROW = """
class Struct(list):
    def get_field_index(self, name): return self.index(name) if name in self else -1

class types:
    is_struct = staticmethod(lambda kind: isinstance(kind, Struct))

class Array:
    def __init__(self, values):
        self.values, self.type = values, Struct(values[0]) if isinstance(values[0], dict) else None
    def to_pylist(self): return self.values
"""
COMPUTE = """
from pyarrow import Array

def struct_field(array, path):
    (place,) = path
    return Array([row[array.type[place]] for row in array.values])

def is_null(array): return Array([value is None for value in array.values])
"""
PARQUET = """
import json
from types import SimpleNamespace as S
from pyarrow import Array

class Batch(list):
    num_rows = property(len)
    schema = property(lambda self: S(names=list(self[0])))
    def column(self, name): return Array([row[name] for row in self])
    def slice(self, start, count): return Batch(self[start:start + count])
    def to_pylist(self): return list(self)

class Leaves(list):
    def column(self, number): return S(path=self[number])

class ParquetFile:
    def __init__(self, name):
        with open(f"{name}.json") as file:
            self.rows = json.load(file)
        first = self.rows[0]
        self.schema_arrow = S(names=list(first))
        self.schema = Leaves(
            leaf
            for name, value in first.items()
            for leaf in ([f"{name}.{part}" for part in value] if isinstance(value, dict) else [name])
        )
        count = len(self.rows)
        self.metadata = S(num_rows=count, row_group=lambda number: S(num_rows=count), num_row_groups=1)
        self.num_row_groups = 1
    def iter_batches(self, size, columns, row_groups=()):
        names = {column.split(".")[0] for column in columns}
        yield Batch({name: row[name] for name in row if name in names} for row in self.rows)
"""
ROW: dict[str, Any] = {
    "data_source": "my/own",
    "prompt": [{"role": "user", "content": "2 + 3?"}],
    "reward_model": {"ground_truth": "5"},
}
REFUSED = (
    "data.train_index: {}: row 0: verl has no reward function for data_source 'my/own'; set reward.function"
)


def wheel(folder: Path) -> None:
    info = "pyarrow-1.0.dist-info"
    scored = 'def score(data_source):\n    return data_source == "openai/gsm8k"\n'
    files = {
        "pyarrow/__init__.py": ARROW,
        "pyarrow/compute.py": COMPUTE,
        "pyarrow/parquet.py": PARQUET,
        "verl/__init__.py": "",
        "verl/utils/reward_score/__init__.py": scored,
        **{
            f"{name}/__init__.py": "" for name in MODULES if name != "verl"
        },  # of which only the names are asked for
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir()
    with zipfile.ZipFile(folder / "pyarrow-1.0-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)


class Launch:
    """Starts one run whose environments are built from the wheel only."""

    def __init__(self, folder: Path, ending: Callable[[ToyRun], ToyRun]) -> None:
        self.folder, self.data = folder, folder / "t.parquet"
        wheel(folder / "wheels")
        self.run_dir = folder / "state" / "liverl" / "runs" / "liverl" / "first"
        self.run = ending(ToyRun(self.run_dir))
        self.rows(ROW)

    def rows(self, *rows: dict[str, Any]) -> None:
        texts = {name: [json.dumps(row[name]) for row in rows] for name in rows[0]}
        self.data.write_bytes(parquet(texts, dict.fromkeys(texts, str)))  # its footer is read before
        Path(f"{self.data}.json").write_text(json.dumps(rows))

    def up(self, name: str = "first") -> subprocess.CompletedProcess[str]:
        return self.command("up", "--no-ui", "--yes", "--name", name)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        sets = [
            "environments.verl={requirements: [pyarrow], first: {requirements: []}, python: null}",
            "environments.proxy.requirements=[pyarrow]",
            *(f"data.{key}={self.data}" for key in ("train_index", "val_index")),
            *(f"infrastructure.{key}=0" for key in ("litellm_port", "ray_port", "ray_dashboard_port")),
            f"model.model_path=smoke:{self.folder / 'model'}",
        ]
        given = [word for text in sets for word in ("--set", text)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
        return subprocess.run(
            [sys.executable, "-m", "liverl_tui", *words, "--profile", "cpu-verl", *given],
            env={
                **kept,
                "XDG_STATE_HOME": str(self.folder / "state"),
                "LIVERL_CACHE_DIR": str(self.folder / "cache"),
                "UV_FIND_LINKS": str(self.folder / "wheels"),
                "UV_NO_INDEX": "1",
                "UV_CACHE_DIR": str(self.folder / "uv-cache"),
                "UV_PYTHON_DOWNLOADS": "never",
            },
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    def started(self) -> list[str | None]:
        """The services that have got a process."""
        events = self.run.events()
        return [e.service for e in events if e.kind == "state" and e.data.get("state") == "starting"]


@pytest.fixture
def launch(tmp_path: Path, ending: Callable[[ToyRun], ToyRun]) -> Iterator[Launch]:
    yield Launch(tmp_path, ending)


def test_rows_are_refused_in_an_environment_that_is_built_first(launch: Launch) -> None:
    ended = launch.up()
    words = REFUSED.format(launch.data)
    assert ended.returncode == 3, ended.stdout
    assert words in ended.stdout and "Traceback" not in ended.stdout
    assert launch.started() == []
    result = launch.run.result()
    assert (result.state, result.exit_code) == ("failed", 3)
    assert result.cause is not None and result.cause.service == "env:verl"
    assert result.cause.text == f"{words}; {words.replace('train_index', 'val_index')}"
    wait_until(lambda: not launch.run.tagged(), what="the end of the run")
    again = launch.up("second")  # the environment is there: refused before there is a backend
    assert again.returncode == 3 and words.partition(": ")[2] in again.stdout
    assert "nothing was started" in again.stdout and not launch.run_dir.with_name("second").exists()


def test_services_start_once_the_rows_are_checked(launch: Launch) -> None:
    """They fail, as the environments hold nothing that they could run."""
    launch.rows(*[{**ROW, "data_source": "openai/gsm8k"}] * 8)
    ended = launch.up()
    assert "data.train_index" not in ended.stdout and ended.returncode not in (0, 3)
    assert launch.started() != []
    events = launch.run.events()
    began = next(n for n, e in enumerate(events) if e.kind == "state" and e.data.get("state") == "starting")
    checked = [n for n, e in enumerate(events) if "checking the run's data" in e.text]
    assert checked and checked[0] < began
    preflight = read(RunDir(launch.run_dir))
    assert preflight is not None
    found = {check.name: check for check in preflight.checks}
    assert found["data.train_index"].text.endswith("8 rows: chat 8"), (
        "what was skipped before was looked at since"
    )
    assert "data rows" not in found and found["environment verl"].status == "warn"
    assert found["run directory"].status == "ok", "what was found before is there"


def test_check_builds_environments_on_request_and_looks_into_them(launch: Launch) -> None:
    ended = launch.command("check")
    assert ended.returncode == 0 and "no row was read" in ended.stdout
    assert not (launch.folder / "cache").exists(), "nothing is built without --build"
    ended = launch.command("check", "--build")
    words = REFUSED.format(launch.data).partition(": ")[2]
    assert ended.returncode == 3 and words in ended.stdout, ended.stdout
    assert (launch.folder / "cache").exists() and not launch.run_dir.exists()


def test_check_builds_nothing_where_a_check_fails(launch: Launch) -> None:
    launch.data.write_bytes(b"no parquet")
    ended = launch.command("check", "--build")
    assert ended.returncode == 3 and "is not a parquet file" in ended.stdout
    assert not (launch.folder / "cache").exists()
