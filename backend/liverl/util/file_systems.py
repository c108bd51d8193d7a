"""On which file system a path is, and whether that is a network's. Asks ``/proc/self/mountinfo``, and not the file
system itself, which may hang."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from liverl.util.kernel_file import kernel_text

MOUNTS = "/proc/self/mountinfo"
# Types of mountinfo of which each open goes to another host. cpfs and alinas: Alibaba's, as LiveRL's documents name
# them; the others: Linux Documentation/filesystems, and the manuals of these products.
NETWORK = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ceph",
            "lustre",
            "gpfs",
            "beegfs",
            "glusterfs",
            "afs",
            "cpfs",
        ),
        *("alinas", "orangefs", "pvfs2", "wekafs", "panfs", "ocfs2", "gfs2", "juicefs", "davfs"),
    }
)
# Below fuse the type says which program answers. These serve from a disk of this host; of any other it is not known.
LOCAL_FUSE = frozenset(
    {
        *(
            "fuseblk",
            "fuse.overlayfs",
            "fuse.fuse-overlayfs",
            "fuse.unionfs",
            "fuse.mergerfs",
            "fuse.squashfuse",
        ),
        *("fuse.lxcfs", "fuse.bindfs", "fuse.encfs", "fuse.gocryptfs", "fuse.portal"),
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")


class FileSystem(msgspec.Struct, frozen=True):
    """``kind``: its type as in mountinfo, such as ``ext4``; ``mount``: where it is mounted. ``network``: its files come
    from another host, or from a program (fuse) that may ask one."""

    kind: str
    mount: str

    @property
    def network(self) -> bool:
        """Whether opening a file of it may take a way over the network."""
        fuse = self.kind == "fuse" or self.kind.startswith("fuse.")
        return self.kind in NETWORK or (fuse and self.kind not in LOCAL_FUSE)

    def __str__(self) -> str:
        return f"{self.kind}, mounted at {self.mount}"


def file_system(
    path: str | os.PathLike[str], mounts: str | None = None, *, followed: bool = True
) -> FileSystem | None:
    """The file system of a path, which need not exist: that of its nearest mount. ``mounts``: a mountinfo (None: of
    this process). Links are followed, so that a file system that hangs delays it; not with ``followed`` False. None
    where the kernel tells nothing.
    """
    if mounts is None:
        try:
            mounts = kernel_text(MOUNTS)
        except OSError:
            return None
    place = Path(os.path.realpath(path) if followed else os.path.abspath(path))
    found: FileSystem | None = None
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        # Of two mounts at one place the later covers the earlier.
        if place.is_relative_to(mount) and (found is None or len(mount) >= len(found.mount)):
            found = FileSystem(right.split(" ", 1)[0], mount)
    return found
