"""Rules for the files that a run is watched through. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import SHOWN, Resolved, Window
from liverl.model import Evidence, Symptom


def file_unreadable(window: Window) -> Iterator[Symptom | Resolved]:
    """A log, a metrics file or a file of a trial could not or must not be read.

    - the evidence says ``Permission denied`` -> let your user read it: its owner gives ``setfacl -m u:NAME:r FILE``
      or ``chmod``; or watch as that user
    - the evidence says ``not a regular file``, or names a link -> replace it by a regular file, or remove it
    - the evidence says anything else, such as an error of input and output -> the file system is the cause: ``df``
      and ``dmesg`` on its host
    """
    files = window.now.unreadable
    if not files:
        return
    first = files[0]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    yield Symptom(
        id="file_unreadable",
        severity="warning",
        title=f"cannot read {first.path}{more}",
        cause=f"{first.path}: {first.why}; what the run's views show leaves this file out",
        fix="let your user read it (its owner: chmod, setfacl), or watch as that user; nothing has to be restarted"
        if window.beside.foreign
        else "remove the file, or replace it by a regular file that you may read; nothing has to be restarted",
        evidence=tuple(Evidence(f"{file.path}: {file.why}") for file in files[:SHOWN]),
    )
