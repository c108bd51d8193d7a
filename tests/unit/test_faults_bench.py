"""The runner of the fault table: what survives, what does harm, what hangs, what raises; nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.waiting import wait_until

from liverl.procs import procfs

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))
import faults  # noqa: E402
from fault_cases.base import Case, Outcome, Part, Shared  # noqa: E402


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "LEAVE_S", 1.0)


def sleeper(folder: Path, **how: object) -> int:
    """A process that a case leaves behind; its pid is noted."""
    argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(argv, start_new_session=True, **how)  # type: ignore[call-overload]
    with folder.with_name("pids").open("a") as file:
        file.write(f"{process.pid}\n")
    return int(process.pid)


def hangs(folder: Path) -> Outcome:
    sleeper(folder)
    time.sleep(600)
    return Outcome()


def leaves(folder: Path) -> Outcome:
    sleeper(folder)
    sleeper(folder, env={"PLACE": f"{folder}/run"})
    return Outcome()


def raises(folder: Path) -> Outcome:
    raise LookupError("the fault\ncould not be tried")


def dies(folder: Path) -> Outcome:
    os.kill(os.getpid(), 9)
    return Outcome()


def doubled(folder: Path) -> Outcome:
    return Outcome(doubled=2, lost=1, note="twice")


CASES = {
    "survives": Case("survives", lambda folder: Outcome(named_s=1.5)),
    "doubles": Case("doubles", doubled),
    "hangs": Case("hangs", hangs),
    "leaves": Case("leaves", leaves),
    "raises": Case("raises", raises),
    "dies": Case("dies", dies),
}


def tried(name: str, folder: Path, limit: float = 60.0) -> faults.Tried:
    (found,) = faults.attempt("toys", CASES[name], folder / name, limit)
    assert not (folder / name).exists()
    return found


def gone(folder: Path) -> None:
    for pid in map(int, (folder / "pids").read_text().split()):
        wait_until(lambda pid=pid: not procfs.alive(pid, None), what=f"the end of {pid}")  # type: ignore[misc]


def test_a_case_that_survives(tmp_path: Path) -> None:
    found = tried("survives", tmp_path)
    assert found.survived and found.outcome == Outcome(named_s=1.5) and not found.problem


def test_a_case_that_doubles_is_no_survivor(tmp_path: Path) -> None:
    found = tried("doubles", tmp_path)
    assert not found.survived and found.outcome.doubled == 2


def test_a_case_that_hangs_counts_as_unstoppable_and_is_ended(tmp_path: Path) -> None:
    found = tried("hangs", tmp_path, limit=1.0)
    assert not found.survived and found.outcome == Outcome(unstoppable=1)
    assert found.problem == "did not end within 1 s"
    gone(tmp_path)


def test_what_a_case_leaves_is_told_and_ended(tmp_path: Path) -> None:
    found = tried("leaves", tmp_path)
    assert not found.survived and found.problem.startswith("left processes") and found.outcome.leaked == 2
    assert found.problem.count(",") == 1, "both"
    gone(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("raises", "LookupError: the fault could not be tried"), ("dies", "ended without a result")],
)
def test_a_case_that_cannot_be_tried_is_no_survivor(tmp_path: Path, name: str, words: str) -> None:
    found = tried(name, tmp_path)
    assert not found.survived and words in found.problem and found.outcome == Outcome()


def many(folder: Path) -> list[Part]:
    return [Part("one"), Part("two", Outcome(leaked=3, note="a key")), Part("three", problem="not tried")]


def test_faults_that_share_a_run_are_counted_one_by_one(tmp_path: Path) -> None:
    found = faults.run_all({"toys": [Shared("many", many, 3), CASES["survives"]]}, tmp_path, jobs=1)
    assert [(t.name, t.survived) for t in found] == [
        ("one", True),
        ("two", False),
        ("three", False),
        ("survives", True),
    ]
    text = faults.table(found)
    assert "4 tried, 2 survived, 0 lost, 0 doubled, 3 leaked, 0 unstoppable" in text
    assert "FAILED toys: two: 3 leaked; a key" in text and "FAILED toys: three: not tried" in text


def test_a_shared_run_that_tried_too_few_or_none_is_no_survivor(tmp_path: Path) -> None:
    (one, two, few) = faults.attempt(
        "toys", Shared("few", lambda f: [Part("a"), Part("b")], 3), tmp_path / "1"
    )
    assert one.survived and two.survived and few.problem == "2 were tried, of 3 at least"
    (none,) = faults.attempt("toys", Shared("none", lambda f: [], 1), tmp_path / "2")
    assert none.problem == "nothing was tried"
    (raised,) = faults.attempt("toys", Shared("raises", raises, 5), tmp_path / "3")  # type: ignore[arg-type]
    assert "LookupError" in raised.problem and not raised.survived


def test_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"], env={"PLACE": f"{tmp_path}/leaves-not"})
    try:
        wait_until(lambda: procfs.command_line(other.pid).startswith("sleep"), what="its start")
        tried("leaves", tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_table_counts_and_lists(tmp_path: Path) -> None:
    areas = {"one": [CASES["survives"], CASES["doubles"]], "two": [CASES["raises"], CASES["survives"]]}
    told: list[str] = []
    found = faults.run_all(areas, tmp_path, jobs=2, on_tried=lambda t: told.append(t.name))
    assert [(t.area, t.name) for t in found] == [
        ("one", "survives"),
        ("one", "doubles"),
        ("two", "raises"),
        ("two", "survives"),
    ]
    assert sorted(told) == ["doubles", "raises", "survives", "survives"]
    _head, one, two, _, total, *failures = faults.table(found).split("\n")
    assert one.split() == ["one", "2", "1", "1.5", "1.5"] and two.split() == ["two", "2", "1", "1.5", "1.5"]
    assert total == "4 tried, 2 survived, 1 lost, 2 doubled, 0 leaked, 0 unstoppable"
    assert len(failures) == 2 and "1 lost; 2 doubled; twice" in failures[0]
    assert failures[1].startswith(
        "FAILED two: raises: LookupError: the fault could not be tried (test_faults_bench.py:"
    )


def test_the_exit_code_and_the_areas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "collect", lambda only=(): {"toys": [CASES["survives"]]})
    assert faults.main(["--quick", "--jobs", "1"]) == 0
    assert "1 tried, 1 survived, 0 lost, 0 doubled, 0 leaked, 0 unstoppable" in capsys.readouterr().out
    monkeypatch.setattr(faults, "collect", lambda only=(): {"toys": [CASES["doubles"]]})
    assert faults.main(["--jobs", "1"]) == 1
    with pytest.raises(SystemExit):
        faults.main(["--only", "nothing"])


def test_every_area_has_cases_with_different_names() -> None:
    areas = faults.collect()
    assert {"kills", "load", "secrets", "surroundings", "text"} <= set(areas)
    for area, cases in areas.items():
        names = [case.name for case in cases]
        assert names and len(set(names)) == len(names), area
    assert faults.size(areas) >= 700
    assert set(faults.collect(only=["text"])) == {"text"}
