"""Who holds a lock on a file, by ``/proc/locks``."""

from __future__ import annotations

import os
from pathlib import Path

from liverl.procs import procfs
from liverl.util.kernel_file import kernel_text


def lock_holder(path: Path) -> int | None:
    """The pid of the process on this host that holds a lock on the file; None: no process that can be seen does."""
    try:
        status = os.stat(path)
        locks = kernel_text("/proc/locks").splitlines()
    except OSError:
        return None
    # 12: FLOCK  ADVISORY  WRITE 4711 fd:01:1835019 0 EOF
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks:
        words = line.split()
        if (
            len(words) < 6
            or words[5].rpartition(":")[2] != file.rpartition(":")[2]
            or not words[4].isdecimal()
        ):
            continue
        pid = int(words[4])  # 0: in another namespace
        # Some file systems show another device here than to a process.
        ours = words[5] == file or procfs.environment_tag(pid, b"LIVERL_RUN_DIR") == str(path.parent)
        if pid and ours and procfs.read_proc(pid) is not None:
            return pid
    return None
