"""What the files of a run say of their own directory, where it has been copied or moved since they were written.

Commands and paths in them name the directory in which the run was made. Who types one would act on that run, which may
be another person's; so they are read with the directory in which they lie now.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

from liverl.rundir.commands import resume_command, run_words
from liverl.util.decode import decode_json
from liverl.util.regular_file import read_regular

_END = r"(?![\w.-])"  # not the beginning of a longer name


def made_in(run_dir: Path) -> str | None:
    """The directory that ``plan.json`` names, if it is another one than ``run_dir``; None if not, or not known."""
    try:
        plan = decode_json(read_regular(run_dir / "plan.json"))
    except (OSError, ValueError, RecursionError):
        return None
    recorded = plan.get("run_dir") if isinstance(plan, dict) else None
    if not isinstance(recorded, str) or not os.path.isabs(recorded) or not run_dir.is_absolute():
        return None
    return None if os.path.realpath(recorded) == os.path.realpath(run_dir) else recorded


def as_here(text: str, run_dir: Path, recorded: str) -> str:
    """A text of a run that was made in ``recorded``, with the paths and commands of ``run_dir``."""
    there = Path(recorded)
    words = run_words(there)
    if words != shlex.quote(recorded):  # under the default root a command takes its name only
        command = rf"(liverl-tui (?!up )[a-z -]+ ){re.escape(words)}{_END}"
        text = re.sub(command, lambda found: f"{found[1]}{run_words(run_dir)}", text)
    for old, new in ((resume_command(there), resume_command(run_dir)), (recorded, str(run_dir))):
        text = re.sub(rf"(?<![\w.-]){re.escape(old)}{_END}", lambda _, new=new: new, text)  # type: ignore[misc]
    return text


def all_here(value: Any, run_dir: Path, recorded: str) -> Any:
    """The same of each text in a value of JSON."""
    if isinstance(value, str):
        return as_here(value, run_dir, recorded)
    if isinstance(value, list):
        return [all_here(one, run_dir, recorded) for one in value]
    if isinstance(value, dict):
        return {key: all_here(one, run_dir, recorded) for key, one in value.items()}
    return value
