"""Files that the interface itself writes: copied text, screenshots, crash reports."""

from __future__ import annotations

from pathlib import Path

from liverl.util.modes import make_directory
from liverl.util.regular_file import overwrite


def write_own(run_dir: Path, name: str, text: str, *, in_run: bool = True) -> Path:
    """Write the file ``name`` under the run directory and return its path.

    If that directory cannot be written or is another user's, or with ``in_run`` False, it goes to the user's state
    directory. Only the user may read it (mode 0600), as copied log lines can hold secrets.

    Raises:
        OSError: neither directory can be written.
    """
    from liverl.rundir.state_home import interface_root

    places = [run_dir] if in_run and run_dir.is_dir() and _is_ours(run_dir) else []
    places.append(interface_root() / run_dir.parent.name / run_dir.name)
    for place in places:
        path = place / name
        try:
            make_directory(path.parent)
            overwrite(path, text.encode("utf-8", "replace"), 0o600)
        except OSError:
            if place is places[-1]:
                raise
            continue
        return path
    raise AssertionError


def _is_ours(run_dir: Path) -> bool:
    """Whether no other user can have put a link there that leads the file elsewhere."""
    from liverl.rundir.path_facts import path_facts, present_caller
    from liverl.rundir.trust import assess

    return not assess(path_facts(run_dir), present_caller()).refused
