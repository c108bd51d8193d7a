"""Each live drill: seconds from its evidence to its alert, the sentence, and the fix.

Runs ``tests/process/test_drills.py`` with its slow tests, in about four minutes; with ``--verl`` those of the real verl
and Ray, ``tests/stack/test_verl_faults.py``, in half an hour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]


def main() -> int:
    """Run the drills and print their table; 0 if all passed."""
    drills = "stack/test_verl_faults.py" if "--verl" in sys.argv[1:] else "process/test_drills.py"
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table"
        table.touch()
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "slow or not slow"]
        env = {**os.environ, "LIVERL_DRILLS_TABLE": str(table)}
        done = subprocess.run([*command, str(TESTS / drills)], env=env, check=False)
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    print("| fault | alert | seconds | sentence | fix |\n|---|---|---|---|---|")
    for fault, seconds, alert, sentence, fix in rows:
        cells = (fault, alert, f"{seconds:.1f}", sentence, fix)
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
