"""A second user of the host against a run of toys: ``tests/bench/second_user.py`` has the table, and more by hand."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))
import second_user  # noqa: E402
from kit.cli import run_cli  # noqa: E402
from kit.runs import make_run, toy  # noqa: E402

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("useradd") is None or not Path(second_user.SYSTEM_PYTHON).exists(),
    reason="a second user is made with useradd, which needs root, and runs the system's python3",
)


@needs_root
def test_what_a_second_user_can_reach(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folders of pytest are closed to others: the run needs one that is open."""
    folder = Path("/tmp") / f"liverl-second-{os.getpid()}"
    folder.mkdir()
    try:
        rows = second_user.attempt(folder, kinds=("commands", "sockets", "processes", "signals", "files"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert not [row for row in rows if not row.ok], second_user.table(rows)
    tried = {kind: sum(row.kind == kind for row in rows) for kind in second_user.KINDS}
    assert tried["sockets"] >= 2 and tried["processes"] > 50 and tried["files"] > 40 and tried["signals"] > 20
    assert tried["commands"] == len(second_user.COMMANDS) + 2


@needs_root
def test_nothing_of_the_user_is_left() -> None:
    import pwd

    with second_user.other_user() as name:
        assert second_user.as_user(name, ["id", "-un"]).stdout.strip() == name
    with pytest.raises(KeyError):
        pwd.getpwnam(name)


def test_a_row_that_came_otherwise_is_shown() -> None:
    rows = [
        second_user.Row("files", "x", "EACCES or EPERM", "EPERM"),
        second_user.Row("files", "y", "EPERM", "opened"),
    ]
    assert [row.ok for row in rows] == [True, False]
    text = second_user.table(rows)
    assert text.splitlines() == ["files          1 of    2", "OPEN  files: y: opened (expected EPERM)"]


def test_what_only_shows_executes_nothing_of_a_run(tmp_path: Path) -> None:
    """Neither its services, nor its notification targets, nor its environments."""
    mark = tmp_path / "mark"
    touch = (sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    run = make_run(tmp_path, [toy("worker", argv=touch)])
    plan = json.loads((run.run_dir / "plan.json").read_text())
    plan["notify"] = {**(plan.get("notify") or {}), "targets": [{"command": list(touch)}]}
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    for words in (
        ("status",), ("events",), ("logs",), ("ls",), ("plan",), ("doctor",), ("wait", "--timeout", "0"), ("notify",),
        ("attach", "--plain"), ("watch", "--once"),
    ):  # fmt: skip
        where = [str(run.run_dir)] if words[0] in ("doctor", "watch") else ["--run", str(run.run_dir)]
        done = run_cli(*words, *where, seconds=60)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert not mark.exists() and not run.tagged(), words
