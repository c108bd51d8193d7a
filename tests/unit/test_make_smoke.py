"""``make-smoke`` with a stand-in for verl's Python: what it is given, and what becomes of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl_tui.cli.make_smoke import make_smoke_command
from liverl_tui.text.errors import CliError

PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
[ -f "$PYTHONPATH/liverl/__init__.py" ] || exit 9
echo "$@" > "$(dirname "$0")/argv"
mkdir -p "$3/model" && : > "$3/val.parquet"
exit %d
"""


def make(tmp_path: Path, target: Path, code: int = 0) -> int:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(PYTHON % code)
    python.chmod(0o755)
    args = [str(target), "--steps", "5", "--set", f"environments.verl.venv_path={tmp_path / 'env'}"]
    found: int = make_smoke_command.main(args, standalone_mode=False)
    return found


def test_it_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "smoke"
    assert make(tmp_path, target) == 0
    assert sorted(p.name for p in target.iterdir()) == ["model", "val.parquet"]
    assert [p.name for p in target.parent.iterdir()] == ["smoke"]
    argv = (tmp_path / "env" / "bin" / "argv").read_text().split()
    assert argv[:2] == ["-m", "liverl.verl_runtime.smoke"]
    assert argv[-2:] == ["--steps", "5"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"making the model failed \(exit 3\)"):
        make(tmp_path, tmp_path / "smoke", code=3)
    assert [p.name for p in tmp_path.iterdir()] == ["env"]


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "smoke"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(CliError, match="already exists") as caught:
        make(tmp_path, target)
    assert caught.value.exit_code == 2
    assert [p.name for p in target.iterdir()] == ["mine"]
