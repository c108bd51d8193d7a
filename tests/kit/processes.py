"""The machine's processes, as a test looks at them beside other tests."""

from __future__ import annotations

from liverl.procs import procfs


def command_lines() -> set[str]:
    """The command lines of all processes, without pytest's workers: setproctitle names a worker after its test,
    whose parameters may be what is looked for."""
    lines = {procfs.command_line(pid) for pid in procfs.scan()}
    return {line for line in lines if not line.startswith("[pytest-xdist ")}
