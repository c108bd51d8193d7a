"""What the first process of an environment does: the mounts, and the two pairs of namespaces around them. Pure, but for
looking at which of the machine's files exist.

The outer user and mount namespace makes the mounts. In the inner one they are locked: the kernel lets nobody in it
unmount them or make one writable that is read-only. Commands have no CAP_SYS_ADMIN, as in a container, so that nothing
is mounted over the files of the verifier either, and no CAP_SYS_PTRACE, with which they could take it from the process
that starts another command.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# What the environment has of its own, whether or not the machine has it too.
OWN = ("app", "logs", "tests", "solution", "harbor", "installed-agent", "tmp", "proc")
# Mount points, so that no link can take their place: what Harbor itself writes and reads.
PINNED = ("logs", "tests", "solution")
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"  # chroot is there, and users often have them not on their PATH
_DROPPED = "--bounding-set=-sys_admin,-sys_ptrace"
_MACHINE = ".machine"  # in the root: the machine's whole tree, until the mounts are made
_WAIT = 'echo "ready $0"; exec >/dev/null 2>&1; cd /; while read -r _; do :; done'
# Makes each mount at and below $1 read-only. Paths in mountinfo have spaces and the like as octal numbers.
_READ_ONLY = r"""read_only() {
  while read -r _ _ _ _ at _; do
    printf -v at %b "$at"
    case "$at/" in "$1"/*) mount -o remount,bind,ro -- "$at";; esac
  done < /proc/self/mountinfo
}"""


def system_path(path: str) -> str:
    """``PATH`` with the folders of administrators' programs."""
    return f"{path}:{_SYSTEM}"


def without_privileges(words: Sequence[str], path: str) -> list[str]:
    """A command in the environment, without the capabilities by which it could change the mounts. ``path``: PATH."""
    # Not what PATH finds inside, where it may name a folder that the trial writes.
    return [shutil.which("setpriv", path=f"/usr/bin:/bin:{system_path(path)}") or "setpriv", _DROPPED, *words]


def script(root: Path, trial: Path, mounts: Sequence[Mapping[str, Any]], path: str) -> str:
    """What the first process does in its outer namespaces: mount, and become the process that waits in the inner ones.

    ``root``: the directory that becomes the environment's; ``trial``: the trial's own, which is not seen in it;
    ``path``: PATH. It prints "ready", with its pid outside.
    """
    layout = Layout(root, [mount["target"] for mount in mounts])
    here = shlex.quote(str(root))
    lines = [
        "set -e",
        f"mount -B {here} {here}",
        f"mount --make-unbindable {here}",  # else it would be in itself, with the machine's files above it
        *layout.commands(),
        f"mount --make-private {here}",
        # In a container with a masked /proc a new one is refused; then processes outside are seen too.
        f"mount -t proc proc {here}/proc 2>/dev/null || mount -R /proc {here}/proc",
        "read -r pid _ < /proc/self/stat",  # as it is called outside
        f"cd {here}; mkdir {_MACHINE}",
        # The root of a machine that was booted from the network (rootfs) cannot be replaced, only covered.
        f"if ! pivot_root . {_MACHINE} 2>/dev/null; then mount -R / {_MACHINE}; mount -n --move . /; fi",
        f'exec chroot . /bin/bash -c {shlex.quote(_inside(layout, trial, mounts, path))} "$pid"',
    ]
    return "\n".join(lines)


def _inside(layout: Layout, trial: Path, mounts: Sequence[Mapping[str, Any]], path: str) -> str:
    """Within the new root, so that links are the environment's: the mounts of the trial, and the inner namespaces."""
    lines = ["set -e", _READ_ONLY, *(f"mount -B /{name} /{name}" for name in PINNED)]
    if layout.on_host(str(trial)) is not None:
        # Its root and its results lie there: seen from inside, they could be moved away below the mounts.
        lines.append(f"mount -t tmpfs -o ro,size=4k,mode=0755 none {shlex.quote(str(trial))}")
    for mount in mounts:
        source, target = os.path.realpath(mount["source"]), os.path.normpath(mount["target"])
        at, above = shlex.quote(target), shlex.quote(os.path.dirname(target))
        if os.path.isdir(source):
            lines.append(f"mkdir -p {at}")
        else:
            lines.append(f"mkdir -p {above}; [ -e {at} ] || : > {at}")
        lines.append(f"mount -R {shlex.quote(f'/{_MACHINE}{source}')} {at}")
    for mount in mounts:
        if mount.get("read_only"):
            lines.append(f'read_only "$(realpath {shlex.quote(os.path.normpath(mount["target"]))})"')
            for path_of_it in map(shlex.quote, _also_seen(mount, layout, trial, mounts)):
                lines.append(f'mount -R {path_of_it} {path_of_it}; read_only "$(realpath {path_of_it})"')
    lines += [f"umount -l /{_MACHINE}", f"rmdir /{_MACHINE}"]
    # bash: it also reaps what is left of its descendants
    wait = ["/bin/bash", "-c", _WAIT]
    words = ["unshare", "--user", "--map-root-user", "--mount", *without_privileges(wait, path)]
    return "\n".join([*lines, f'exec {shlex.join(words)} "$0"'])


def _also_seen(
    mount: Mapping[str, Any], layout: Layout, trial: Path, mounts: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Where else in the environment the source of a read-only mount is seen: under its own name, and in other mounts
    of a directory above it."""
    source = os.path.realpath(mount["source"])
    if layout.on_host(source) is not None and not Path(source).is_relative_to(trial):
        yield source
    for other in mounts:
        above = os.path.realpath(other["source"])
        if above != source and Path(source).is_relative_to(above) and not other.get("read_only"):
            yield os.path.normpath(os.path.join(other["target"], os.path.relpath(source, above)))


class Layout:
    """Which of the machine's files are in a root directory, and how they come there.

    ``targets``: paths on which something is mounted. Of the directories above one that the machine does not have, the
    entries are mounted one by one, so that its mount point is made in the root and not on the machine.
    """

    def __init__(self, root: Path, targets: Sequence[str]) -> None:
        self._root = root
        self._split = {"/"}
        for target in targets:
            if not os.path.lexists(target):
                self._split |= {str(one) for one in Path(target).parents if one.is_dir()}

    def on_host(self, path: str) -> Path | None:
        """The machine's file that is at ``path``; None: it is the root's own."""
        parts = Path(path).parts
        if len(parts) < 2 or parts[1] in OWN:
            return None
        for end in range(2, len(parts) + 1):
            part = os.path.join(*parts[:end])
            if part not in self._split:
                return Path(path) if os.path.lexists(part) else None
        return None

    def commands(self) -> Iterator[str]:
        """Shell commands that mount the machine's files."""
        for folder in sorted(self._split):
            if folder.split("/")[1] in OWN:
                continue
            for name in sorted(os.listdir(folder)):
                path = os.path.join(folder, name)
                if path not in self._split and (folder != "/" or name not in OWN):
                    yield from self._mount(path)

    def _mount(self, path: str) -> Iterator[str]:
        source, target = shlex.quote(path), shlex.quote(f"{self._root}{path}")
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # removed since it was listed
            return
        yield f"mkdir -p {shlex.quote(os.path.dirname(f'{self._root}{path}'))}"
        if stat.S_ISLNK(mode):
            yield f"ln -sfn {shlex.quote(os.readlink(path))} {target}"
        elif stat.S_ISDIR(mode):
            yield f"mkdir -p {target}; mount -R {source} {target}"
        elif stat.S_ISREG(mode):
            yield f": > {target}; mount -B {source} {target}"
