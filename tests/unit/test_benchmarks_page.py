"""The benchmarks page says what is stored, and the guard finds what has become slower beside its peers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kit import benchmarks
from kit.command_pages import ROOT

from guard import compared  # type: ignore[import-not-found]  # isort: skip  # kit.benchmarks puts its folder in place
from stored import Figure, Recorder, Result, busy, encoded, read, without_json  # type: ignore[import-not-found]  # isort: skip

ONE = Result(
    bench="toy",
    title="A toy",
    command="python tests/bench/toy.py --quick",
    date="2026-01-02",
    machine="2 cores",
    load=(0.5, 1.25),
    figures=[
        Figure("cpu", 3.0, "ms", {"other": 12.0, "third": 0.0}, 2.0),
        Figure("lost", 0.0, "replies", {"other": 4.0}, 0.0, "of 64", guarded=False),
        Figure("bytes", 12345.0, "kB"),
    ],
)


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-documents"):
        benchmarks.write()
    assert benchmarks.PAGE.read_text("utf-8") == benchmarks.page(benchmarks.results()), "--update-documents"


def test_a_table_has_ratios_targets_machine_date_command_and_load() -> None:
    assert benchmarks.section(ONE) == (
        "## A toy\n\n2026-01-02, on 2 cores. Load 0.5 before and 1.25 after. `python tests/bench/toy.py --quick`.\n\n"
        "| what | ours | other | third | target | remark |\n|---|---|---|---|---|---|\n"
        "| cpu | 3 ms | 12 ms (0.25x) | 0 ms | 2 ms: **missed** |  |\n"
        "| lost | 0 replies | 4 replies |  | 0 replies | of 64 |\n"
        "| bytes | 12,345 kB |  |  |  |  |\n"
    )


def test_a_busy_machine_is_said() -> None:
    assert not busy(ONE)
    waited = replace(ONE, load=(0.5, 2.25))
    assert busy(waited) and "seconds of a clock say little" in benchmarks.section(waited)
    assert not busy(replace(ONE, load=None))
    assert "clock say little" not in benchmarks.section(ONE)


def test_a_stored_result_names_no_folder_and_no_host(tmp_path: Path) -> None:
    for path in (ROOT / "tests" / "bench" / "results").glob("*.json"):
        result = read(path)
        assert result.command.startswith("python tests/bench/") or result.elsewhere, path.name
        assert "/home/" not in path.read_text("utf-8") and "/tmp" not in path.read_text("utf-8"), path.name
        assert result.figures, path.name
    argv = ["/somewhere/tests/bench/toy.py", "--quick", "--json", "/x/y.json", "--only", "a b", "--json=/z"]
    Recorder("A toy").write(tmp_path / "toy.json", ONE.figures, argv)
    back = read(tmp_path / "toy.json")
    assert (back.bench, back.command) == ("toy", "python tests/bench/toy.py --quick --only 'a b'")
    assert back.figures[2].value == 12340.0, "four digits count"
    assert without_json(["a", "--json"]) == ["a"]
    (tmp_path / "other.json").write_text('{"form": 0}')
    with pytest.raises(ValueError, match="no result of form"):
        read(tmp_path / "other.json")


def ratios(new: Result | None) -> list[tuple[str, float, float | None, bool]]:
    return [(one.what, one.old, one.new, one.worse(1.5)) for one in compared(ONE, new)]


def test_only_ratios_are_compared() -> None:
    slow = [
        replace(ONE.figures[0], value=30.0, beside={"other": 120.0})
    ]  # ten times the load, the same ratio
    assert ratios(replace(ONE, figures=slow)) == [("cpu", 0.25, 0.25, False)]
    worse = [replace(ONE.figures[0], value=3.0, beside={"other": 7.0})]
    assert ratios(replace(ONE, figures=worse)) == [("cpu", 0.25, 3 / 7, True)]


def test_seconds_are_not_judged_where_programs_waited_for_a_core() -> None:
    slow = replace(ONE.figures[0], beside={"other": 3.0}, clock=True)
    old = replace(ONE, figures=[replace(ONE.figures[0], clock=True)])
    for load, worse in (((1.0, 1.0), True), ((1.0, 2.5), False)):
        (one,) = compared(old, replace(ONE, figures=[slow], load=load))
        assert (one.worse(1.5), one.waited) == (worse, not worse)
    (one,) = compared(ONE, replace(ONE, figures=[replace(slow, clock=False)], load=(9.0, 9.0)))
    assert one.worse(1.5), "CPU is"


def test_what_is_not_measured_any_more_is_a_regression() -> None:
    assert ratios(replace(ONE, figures=[])) == [("cpu", 0.25, None, True)]
    assert ratios(replace(ONE, figures=[replace(ONE.figures[0], beside={})])) == [("cpu", 0.25, None, True)]


def test_the_guard_ends_with_1_on_a_regression_and_with_2_on_nothing(tmp_path: Path) -> None:
    for name in ("stored", "same", "worse", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "stored" / "toy.json").write_text(encoded(ONE))
    (tmp_path / "same" / "toy.json").write_text(encoded(ONE))
    worse = replace(ONE, figures=[replace(ONE.figures[0], value=6.0), *ONE.figures[1:]])
    (tmp_path / "worse" / "toy.json").write_text(encoded(worse))
    program = [
        sys.executable,
        str(ROOT / "tests" / "bench" / "guard.py"),
        "--stored",
        str(tmp_path / "stored"),
    ]
    codes = {
        name: subprocess.run([*program, str(tmp_path / name)], capture_output=True, text=True, check=False)
        for name in ("same", "worse", "empty")
    }
    assert {name: done.returncode for name, done in codes.items()} == {"same": 0, "worse": 1, "empty": 2}
    assert "WORSE  toy: cpu: 0.25x of other, now 0.5x" in codes["worse"].stdout
    assert json.loads(encoded(ONE))["form"] == 1
