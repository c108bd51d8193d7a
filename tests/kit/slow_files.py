"""A file system whose requests take long, or are never answered: ``python -m kit.slow_files SOURCE MOUNTPOINT RULES``.

It shows SOURCE at MOUNTPOINT through /dev/fuse, without libfuse: one thread per request, nothing is cached. RULES is a
JSON file, read again whenever it changes: ``{"delays": {"read": 5.0}, "within": "trials"}`` delays what is asked of
paths that contain ``within``; ``null`` instead of seconds: until a rule says otherwise; ``"EROFS"``: this
error. A process that waits for an
answer cannot be killed, as with a storage that hangs.

``OPERATIONS`` has the names of the requests; ``stat`` stands for lookup and getattr.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.mounts import mount, unmount

TESTS = Path(__file__).parents[1]
LARGEST = 1 << 17  # bytes of one read or write
OPERATIONS = {
    1: "lookup",
    2: "forget",
    3: "getattr",
    4: "setattr",
    5: "readlink",
    6: "symlink",
    8: "mknod",
    9: "mkdir",
    10: "unlink",
    11: "rmdir",
    12: "rename",
    13: "link",
    14: "open",
    15: "read",
    16: "write",
    17: "statfs",
    18: "release",
    20: "fsync",
    25: "flush",
    26: "init",
    27: "opendir",
    28: "readdir",
    29: "releasedir",
    30: "fsync",
    35: "create",
    36: "interrupt",
    42: "batch_forget",
    45: "rename2",
}
_STAT = ("lookup", "getattr")
_ENTRY = struct.Struct("<QQQQII")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_OPEN = struct.Struct("<QII")


class SlowFiles:
    """The file system as a process. ``slow`` says what takes how long from now on."""

    def __init__(self, folder: Path, place: Path) -> None:
        """Show ``folder``/source at ``place``, which must be a directory."""
        self.place, self._rules = place, folder / "slow-rules.json"
        source = folder / "slow-source"
        source.mkdir(exist_ok=True)
        self.source = source
        self.quick()
        argv = [sys.executable, "-m", "kit.slow_files", *map(os.path.abspath, (source, place, self._rules))]
        self.process = subprocess.Popen(
            argv, cwd=TESTS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"mounted\n":
            raise OSError(errno.ENOSYS, "FUSE is not to be had here")

    def slow(self, delays: dict[str, float | str | None], within: str = "") -> None:
        """Delay these operations, on paths that contain ``within``; None: for ever; or this error."""
        temporary = self._rules.with_suffix(".new")
        temporary.write_text(json.dumps({"delays": delays, "within": within}))
        temporary.replace(self._rules)

    def quick(self) -> None:
        """Delay nothing."""
        self.slow({})

    def end(self) -> None:
        """End the file system. Whoever waits for an answer of it gets an error."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            unmount(self.place)


@contextmanager
def slow_files(folder: Path, place: Path) -> Iterator[SlowFiles]:
    """``SlowFiles`` at ``place``, until the end of the block. Call ``own_mounts`` before."""
    place.mkdir(parents=True, exist_ok=True)
    files = SlowFiles(folder, place)
    try:
        yield files
    finally:
        files.end()


# --- the process --------------------------------------------------------------------------------------------


class _Rules:
    def __init__(self, path: str) -> None:
        self._path, self._seen, self._lock = path, -1, threading.Lock()
        self._delays: dict[str, float | str | None] = {}
        self._within = ""

    def of(self, operation: str, path: str) -> float | str | None:
        """Seconds that an operation takes now; None: for ever."""
        with self._lock:
            changed = os.stat(self._path)
            if (key := changed.st_mtime_ns ^ changed.st_ino) != self._seen:
                rules = json.loads(Path(self._path).read_text())
                self._delays, self._within, self._seen = rules["delays"], rules["within"], key
            if self._within not in path:
                return 0.0
            if operation in self._delays:
                return self._delays[operation]
            return self._delays.get("stat", 0.0) if operation in _STAT else 0.0

    def wait(self, operation: str, path: str) -> None:
        """Wait as long as the rules of now and of later say."""
        began = time.monotonic()
        while (seconds := self.of(operation, path)) is None or isinstance(seconds, str):
            if seconds is not None:
                raise OSError(getattr(errno, seconds), operation)
            time.sleep(0.02)
        while time.monotonic() - began < seconds:
            time.sleep(0.02)
            seconds = self.of(operation, path)
            if not isinstance(seconds, (int, float)):
                return self.wait(operation, path)
        return None


class _Node:
    def __init__(self, fd: int) -> None:
        self.fd, self.lookups = fd, 0
        self.at = f"/proc/self/fd/{fd}"


class _Server:
    def __init__(self, device: int, source: str, rules: _Rules) -> None:
        self._device, self._rules = device, rules
        self._lock = threading.Lock()
        root = _Node(os.open(source, os.O_PATH))
        status = os.fstat(root.fd)
        self._nodes = {1: root}
        self._numbers = {(status.st_dev, status.st_ino): 1}
        self._next = 2
        self._listings: dict[int, list[tuple[str, int, int]]] = {}

    def serve(self) -> None:
        while True:
            try:
                data = os.read(self._device, LARGEST + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # ENODEV: it was unmounted
            length, code, unique, node = struct.unpack_from("<IIQQ", data)
            body, name = data[40:length], OPERATIONS.get(code, "")
            if name in ("init", "forget", "batch_forget", "interrupt"):
                self._at_once(name, unique, node, body)
            else:
                threading.Thread(target=self._answer, args=(name, unique, node, body), daemon=True).start()

    def _at_once(self, name: str, unique: int, node: int, body: bytes) -> None:
        if name == "init":
            _, minor, readahead, flags = struct.unpack_from("<IIII", body)
            wanted = flags & (
                1 << 0 | 1 << 5 | 1 << 15 | 1 << 18
            )  # async reads, big writes, parallel directories
            answer = struct.pack(
                "<IIIIHHIIHHI28x",
                7,
                min(minor, 31),
                readahead,
                wanted,
                64,
                48,
                LARGEST,
                1,
                LARGEST >> 12,
                0,
                0,
            )
            self._send(unique, 0, answer)
        elif name == "forget":
            self._forget(node, struct.unpack_from("<Q", body)[0])
        elif name == "batch_forget":
            (count,) = struct.unpack_from("<I", body)
            for i in range(count):
                self._forget(*struct.unpack_from("<QQ", body, 8 + 16 * i))

    def _answer(self, name: str, unique: int, number: int, body: bytes) -> None:
        try:
            handler: Callable[[_Node, bytes], bytes] | None = getattr(self, f"_do_{name}", None)
            if handler is None:
                raise OSError(errno.ENOSYS, name)
            node = self._nodes[number]
            path = os.readlink(node.at)
            if name in ("lookup", "unlink", "rmdir"):
                path += "/" + os.fsdecode(body.split(b"\0")[0])
            self._rules.wait(name, path)
            self._send(unique, 0, handler(node, body))
        except OSError as error:
            self._send(unique, error.errno or errno.EIO, b"")
        except BaseException as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)
            self._send(unique, errno.EIO, b"")

    def _send(self, unique: int, code: int, body: bytes) -> None:
        try:
            os.write(self._device, struct.pack("<IiQ", 16 + len(body), -code, unique) + body)
        except OSError:
            pass  # whoever asked has been killed

    def _forget(self, number: int, count: int) -> None:
        with self._lock:
            node = self._nodes.get(number)
            if node is None or number == 1:
                return
            node.lookups -= count
            if node.lookups <= 0:
                status = os.fstat(node.fd)
                del self._nodes[number], self._numbers[(status.st_dev, status.st_ino)]
                os.close(node.fd)

    # names

    def _entry(self, node: _Node, name: bytes) -> bytes:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=node.fd)
        status = os.fstat(fd)
        with self._lock:
            number = self._numbers.get((status.st_dev, status.st_ino))
            if number is None:
                number, self._next = self._next, self._next + 1
                self._nodes[number] = _Node(fd)
                self._numbers[(status.st_dev, status.st_ino)] = number
            else:
                os.close(fd)
            self._nodes[number].lookups += 1
        return _ENTRY.pack(number, 0, 0, 0, 0, 0) + _attributes(status)

    def _do_lookup(self, node: _Node, body: bytes) -> bytes:
        return self._entry(node, body.split(b"\0")[0])

    def _do_mknod(self, node: _Node, body: bytes) -> bytes:
        mode, device, _, _ = struct.unpack_from("<IIII", body)
        name = body[16:].split(b"\0")[0]
        os.mknod(name, mode, device, dir_fd=node.fd)
        return self._entry(node, name)

    def _do_mkdir(self, node: _Node, body: bytes) -> bytes:
        mode, _ = struct.unpack_from("<II", body)
        name = body[8:].split(b"\0")[0]
        os.mkdir(name, mode, dir_fd=node.fd)
        return self._entry(node, name)

    def _do_symlink(self, node: _Node, body: bytes) -> bytes:
        name, target = body.split(b"\0")[:2]
        os.symlink(target, name, dir_fd=node.fd)
        return self._entry(node, name)

    def _do_link(self, node: _Node, body: bytes) -> bytes:
        (old,) = struct.unpack_from("<Q", body)
        name = body[8:].split(b"\0")[0]
        os.link(self._nodes[old].at, name, dst_dir_fd=node.fd, follow_symlinks=True)
        return self._entry(node, name)

    def _do_unlink(self, node: _Node, body: bytes) -> bytes:
        os.unlink(body.split(b"\0")[0], dir_fd=node.fd)
        return b""

    def _do_rmdir(self, node: _Node, body: bytes) -> bytes:
        os.rmdir(body.split(b"\0")[0], dir_fd=node.fd)
        return b""

    def _do_rename(self, node: _Node, body: bytes, skip: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old, new = body[skip:].split(b"\0")[:2]
        os.rename(old, new, src_dir_fd=node.fd, dst_dir_fd=self._nodes[target].fd)
        return b""

    def _do_rename2(self, node: _Node, body: bytes) -> bytes:
        if struct.unpack_from("<I", body, 8)[0]:
            raise OSError(errno.EINVAL, "rename2 with flags")
        return self._do_rename(node, body, 16)

    def _do_readlink(self, node: _Node, body: bytes) -> bytes:
        return os.fsencode(os.readlink("", dir_fd=node.fd))

    # attributes

    def _do_getattr(self, node: _Node, body: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + _attributes(os.fstat(node.fd))

    def _do_setattr(self, node: _Node, body: bytes) -> bytes:
        valid, _, handle, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid = (
            struct.unpack_from("<IIQQQQQQIIIIIII", body)
        )
        if valid & 1:
            os.chmod(node.at, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(node.at, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 8:
            os.truncate(handle if valid & 64 else node.at, size)
        if valid & 48:
            now, old = time.time_ns(), os.fstat(node.fd)
            os.utime(
                node.at,
                ns=(
                    (now if valid & 128 else atime * 10**9 + atime_ns) if valid & 16 else old.st_atime_ns,
                    (now if valid & 256 else mtime * 10**9 + mtime_ns) if valid & 32 else old.st_mtime_ns,
                ),
            )
        return self._do_getattr(node, body)

    def _do_statfs(self, node: _Node, body: bytes) -> bytes:
        s = os.statvfs(node.at)
        sizes = (s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree)
        return struct.pack("<QQQQQIIII24x", *sizes, s.f_bsize, s.f_namemax, s.f_frsize, 0)

    # content

    def _do_open(self, node: _Node, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        # The kernel appends by offset; a writer of a part of a page may read.
        fd = os.open(node.at, flags & ~(os.O_NOFOLLOW | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_DIRECT))
        return _OPEN.pack(fd, 1, 0)  # 1: no page cache

    def _do_create(self, node: _Node, body: bytes) -> bytes:
        flags, mode, _, _ = struct.unpack_from("<IIII", body)
        name = body[16:].split(b"\0")[0]
        fd = os.open(name, (flags & ~os.O_APPEND) | os.O_CREAT | os.O_NOFOLLOW, mode, dir_fd=node.fd)
        return self._entry(node, name) + _OPEN.pack(fd, 1, 0)

    def _do_read(self, node: _Node, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _do_write(self, node: _Node, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _do_fsync(self, node: _Node, body: bytes) -> bytes:
        return b""

    def _do_flush(self, node: _Node, body: bytes) -> bytes:
        return b""

    def _do_release(self, node: _Node, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def _do_opendir(self, node: _Node, body: bytes) -> bytes:
        fd = os.open(node.at, os.O_RDONLY | os.O_DIRECTORY)
        with os.scandir(fd) as found:
            entries = [(e.name, e.inode(), stat.S_IFMT(e.stat(follow_symlinks=False).st_mode)) for e in found]
        self._listings[fd] = [(".", 1, stat.S_IFDIR), ("..", 1, stat.S_IFDIR), *entries]
        return _OPEN.pack(fd, 0, 0)

    def _do_readdir(self, node: _Node, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        data = b""
        for number, (name, inode, kind) in enumerate(self._listings[handle][offset:], offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", inode, number, len(raw), kind >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if len(data) + len(entry) > size:
                break
            data += entry
        return data

    def _do_releasedir(self, node: _Node, body: bytes) -> bytes:
        (handle,) = struct.unpack_from("<Q", body)
        del self._listings[handle]
        os.close(handle)
        return b""


def _attributes(s: os.stat_result) -> bytes:
    times = (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)
    seconds, fractions = [ns // 10**9 for ns in times], [ns % 10**9 for ns in times]
    return _ATTR.pack(
        s.st_ino, s.st_size, s.st_blocks, *seconds, *fractions,
        s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0, s.st_blksize, 0,
    )  # fmt: skip


def main(source: str, place: str, rules: str) -> None:
    """Mount, say so on stdout, and serve until the file system is unmounted."""
    os.umask(0)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
    server = _Server(device, os.path.realpath(source), _Rules(rules))
    mount("slow", place, "fuse.slow", 0, options)
    print("mounted", flush=True)
    server.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
