"""A smoke of the fault table's shared areas: a few faults of each kind, by the runner itself. All of it by hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))
import faults  # noqa: E402
from fault_cases import clocks, disks, links, prompts, session_journals  # noqa: E402
from fault_cases.base import Shared  # noqa: E402

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="full disks are mounts of their own, which need root"
)


def tried(case: Shared, folder: Path) -> list[faults.Tried]:
    found = faults.attempt("smoke", case, folder / "case", 60.0)
    assert len(found) >= case.count, [t.problem for t in found]
    return found


def failed(found: list[faults.Tried]) -> list[str]:
    return [line for line in faults.table(found).splitlines() if line.startswith("FAILED")]


@needs_root
def test_full_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "FREE", (0, 2))
    found = tried(Shared("full", disks._full, 2 * len(disks.SIZES) * len(disks.MOMENTS)), tmp_path)
    assert failed(found) == []


def test_hostile_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = (
        "no text",
        "control characters",
        "special tokens",
        "an unknown role",
        "no messages",
        "10,000 tools",
    )
    monkeypatch.setattr(prompts, "BODIES", {name: prompts.BODIES[name] for name in few})
    found = tried(
        Shared("bodies", lambda folder: prompts._all("openai", folder), len(few) + len(prompts.RAW)), tmp_path
    )
    assert failed(found) == []


def test_damaged_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = (
        "is whole",
        "has half a line at its end",
        "lacks its last line",
        "was removed",
        "is a FIFO",
        "is a directory",
    )
    monkeypatch.setattr(session_journals, "DAMAGES", {name: session_journals.DAMAGES[name] for name in few})
    found = tried(Shared("journals", session_journals._damaged, len(few)), tmp_path)
    assert failed(found) == []


def test_steps_of_the_clock_and_times_that_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "STEPS", {"an hour back": (-3600.0,), "to 1970": clocks.STEPS["to 1970"]})
    found = tried(Shared("steps", clocks._all, 2 * len(clocks.MOMENTS)), tmp_path)
    assert failed(found) == []
    over = faults.attempt("smoke", Shared("over", clocks._over, 2), tmp_path / "over", 60.0)
    assert failed(over) == []


def test_planted_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("a link to a file", "a FIFO", "a directory")
    monkeypatch.setattr(links, "PLANTS", {name: links.PLANTS[name] for name in few})
    found = tried(Shared("links", links._planted, len(few) * len(links.FILES) * len(links.MOMENTS)), tmp_path)
    assert failed(found) == []


def test_the_cases_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written behind a link, a turn that is lost, and an answer that is none are found."""

    def write(path: Path, victim: Path) -> None:
        victim.write_text("changed")
        path.symlink_to(victim)

    monkeypatch.setattr(links, "PLANTS", {"a link": write})
    monkeypatch.setattr(links, "FILES", links.FILES[:1])
    found = tried(Shared("links", links._planted, 3), tmp_path)
    assert [t.outcome.leaked for t in found] == [1, 1, 1]
    monkeypatch.setattr(session_journals, "DAMAGES", {"lost": lambda path: path.unlink() or 2})
    (lost,) = faults.attempt("smoke", Shared("lost", session_journals._damaged, 1), tmp_path / "lost", 60.0)
    assert lost.outcome.lost == 2
