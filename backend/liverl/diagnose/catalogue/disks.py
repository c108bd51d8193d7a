"""Rules for the file systems that a run writes to: its own disk, and shared memory. Pure.

The reference documents give no limits for a run under way; these are estimates.
"""

from __future__ import annotations

from collections.abc import Iterator

from liverl.diagnose.tracker import Resolved, Window
from liverl.model import Evidence, Symptom
from liverl.observe.volumes import RUN_DIRECTORY, SHARED_MEMORY, SOON_S, TRIALS, Volume, is_low

FULL = 1 << 20  # bytes: nothing more can be written
NOW_S = 600.0  # seconds until it is full that hardly suffice to make room
_GIB, _MIB = 1 << 30, 1 << 20


def disk_low(window: Window) -> Iterator[Symptom | Resolved]:
    """A file system of the run is low: little room is left, or it is full within
    an hour at the rate at which its use grows.

    - the title says ``/dev/shm``, and ``fuser -v /dev/shm/*`` shows files without a process -> remove those files
    - the title says ``/dev/shm``, and all files have a process -> give the container more shared memory (``docker run
      --shm-size``), for the next start
    - the largest entry of the evidence is ``checkpoints`` -> ``liverl-tui checkpoints prune RUN --keep 2``, which
      leaves the best, and a larger ``training.save_freq``; ``training.keep_checkpoints`` removes the best, too
    - the largest entry is ``trials`` -> set ``retention.keep_steps`` for the next attempt
    - no entry of this run is large -> ``liverl-tui ls`` lists other runs; of an ended one ``liverl-tui clean RUN``
      removes only sockets and remains, with ``--all`` also its trials and logs; ``liverl-tui envs gc``
      removes unused environments, and nothing removes what is in ``~/.cache/huggingface``
    """
    for volume in window.beside.volumes:
        if not is_low(volume):
            continue
        shm, left = volume.what == SHARED_MEMORY, volume.seconds_left
        urgent = volume.free < FULL or (left is not None and left <= NOW_S)
        name = "disk_low" if volume.what == RUN_DIRECTORY else f"disk_low:{volume.folder}"
        if volume.free < FULL:
            how_full = "full"
        elif left is not None and left <= SOON_S:
            how_full = f"full in about {_time(left)}"
        else:
            how_full = "nearly full"
        yield Symptom(
            id=name,
            severity="critical" if urgent else "warning",
            title=f"{'/dev/shm' if shm else 'the disk of the ' + volume.what} is {how_full}",
            cause=f"{size(volume.free)} of {size(volume.total)} are free{_rate(volume)}; "
            + (
                "a process that cannot map shared memory ends with a bus error (SIGBUS)"
                if shm
                else "a service that cannot write a checkpoint or a log fails"
            ),
            fix="remove files in /dev/shm whose processes have ended (fuser -v /dev/shm/* shows those of others), or "
            "give the container more shared memory"
            if shm
            else "delete old checkpoints of this run, or other runs in the same directory; raise training.save_freq to "
            "save less often, or set retention.keep_steps, so that the turns of earlier steps' trials are removed",
            evidence=(
                Evidence(f"{volume.folder}: {size(volume.free)} free", value=float(volume.free)),
                *(
                    Evidence(f"{entry}: {size(used)}", value=float(used))
                    for entry, used in _of_run(window, volume)
                ),
                *_step(window, volume),
            ),
        )


def _of_run(window: Window, volume: Volume) -> tuple[tuple[str, int], ...]:
    return window.beside.largest if volume.what == RUN_DIRECTORY else ()


def _step(window: Window, volume: Volume) -> Iterator[Evidence]:
    taken = window.beside.step_bytes
    if taken and volume.what in (RUN_DIRECTORY, TRIALS):
        yield Evidence(f"trials of the newest finished step: {size(taken)}", value=float(taken))


def _rate(volume: Volume) -> str:
    if volume.per_second is None:
        return ""
    return f", and {size(round(volume.per_second * 60))} more are used each minute"


def size(count: int) -> str:
    """Bytes as ``300 MiB`` or ``1.5 GiB``."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
