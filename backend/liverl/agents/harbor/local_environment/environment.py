"""The environment as Harbor sees it: its start and end, commands in it, and copies to and from it.

Each environment has a user, a mount and a process namespace. What runs in it has its own /app, /logs, /tests, /solution
and /tmp, and ends with the environment, daemons included. All else is the machine's: its files, network, memory and
user. It isolates paths, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

from . import copies
from .namespaces import OWN, Layout, script, system_path, without_privileges

WORKDIR = "/app"
# Of the runner's environment only these are passed on, since agents run what a model wrote; the last three are those
# by which liverl finds what a run has left behind.
PASSED = ("PATH", "HOME", "LANG", "LIVERL_RUN", "LIVERL_RUN_DIR", "LIVERL_GENERATION")
HEAD, TAIL = (
    8 << 20,
    1 << 20,
)  # bytes of a command's output that are kept: from its beginning, and from its end
START_S, STOP_S = 30.0, 10.0
STALL_S = 120.0  # seconds in which a copy gets on by nothing: something holds its program
_BUILD_FILES = ("Dockerfile", "docker-compose.yaml")
_NEEDED = (
    "unshare", "nsenter", "setpriv", "mount", "umount", "pivot_root", "chroot", "bash", "tar", "find", "realpath", "rm",
)  # fmt: skip
_SHOWN = 500  # characters of what a program says of its failure


class LocalEnvironment(BaseEnvironment):  # type: ignore[misc]  # Harbor is not installed where types are checked
    """``environment_type: local``. Users of tasks are ignored: all runs as the user of the run."""

    @staticmethod
    def type() -> str:
        """See ``BaseEnvironment``."""
        return "local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """See ``BaseEnvironment``."""
        return EnvironmentCapabilities(mounted=True)

    def _validate_definition(self) -> None:
        missing = [name for name in _NEEDED if shutil.which(name, path=_environment()["PATH"]) is None]
        if missing:
            raise RuntimeError(f"environment_type local needs the programs {', '.join(missing)}")
        for mount in self._mounts:
            if mount["type"] != "bind":
                raise ValueError(f"environment_type local cannot mount the {mount['type']} {mount['source']}")
        self._holder: asyncio.subprocess.Process | None = None
        self._pid = ""  # of the namespaces' first process
        self._trial = self.trial_paths.trial_dir.resolve()
        # One trial may have several environments: its own, and one of its verifier.
        self._root = self._trial / "root" / self.session_id.rpartition("__")[2]

    async def start(self, force_build: bool) -> None:
        """Make the root directory and the namespaces; ``force_build`` changes nothing, as nothing is built. The files
        beside the task's Dockerfile are put into the working directory."""
        for folder in (self._trial, *(path for path in self._trial.iterdir() if path.is_dir())):
            folder.chmod(folder.stat().st_mode & ~0o022)  # Harbor lets everybody write them
        layout = Layout(self._root, [mount["target"] for mount in self._mounts])
        workdir = self._workdir.strip("/")
        for name in (*OWN, *([workdir] if workdir else ())):
            if layout.on_host(f"/{name}") is None:
                (self._root / name).mkdir(parents=True, exist_ok=True)
        await self._hold()
        if self._enable_environment_dir_upload and self.environment_dir.is_dir():
            await self._send_tree(self.environment_dir, self._workdir, _BUILD_FILES)

    async def stop(self, delete: bool) -> None:
        """End everything that runs in the environment; ``delete``: remove its files too."""
        holder, self._holder = self._holder, None
        if holder is not None:
            assert holder.stdin is not None
            holder.stdin.close()  # its first process ends, and the kernel kills all others of the namespace
            try:
                async with asyncio.timeout(STOP_S):
                    await holder.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    holder.kill()
                await holder.wait()
        if delete and self._root.exists():
            await self._remove()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command; what it leaves in the background lives on until the environment ends.

        Raises:
            RuntimeError: the environment is not running, or the command took longer than ``timeout_sec``.
        """
        words = f"cd {shlex.quote(cwd or self._workdir)} || exit\n{command}"
        variables = {**_environment(), **(self._merge_env(env) or {})}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = await self._inside([words], variables, asyncio.subprocess.DEVNULL, out, err)
            try:
                async with asyncio.timeout(timeout_sec):
                    await process.wait()
            except TimeoutError:
                raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
            finally:
                await _end(process)
            return ExecResult(stdout=_kept(out), stderr=_kept(err), return_code=process.returncode)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """See ``BaseEnvironment``.

        Raises:
            OSError: the file cannot be read.
            CopyFailed: it cannot be written in the environment.
        """
        source = Path(source_path)
        mode = f"{source.stat().st_mode & 0o777:o}"
        words = [copies.FILE_IN, "bash", target_path, source.name, mode]
        await self._send(words, lambda stream: copies.send_file(source, stream), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """See ``BaseEnvironment``.

        Raises:
            OSError: a file cannot be read.
            CopyFailed: one cannot be written in the environment.
        """
        await self._send_tree(Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """See ``BaseEnvironment``. Links are followed in the environment; the target is written anew.

        Raises:
            FileNotFoundError: there is no such file in the environment.
            CopyFailed, OSError: it cannot be copied.
        """
        target = Path(target_path)
        if target.is_dir() and not target.is_symlink():
            target /= os.path.basename(source_path)

        def receive(stream: IO[bytes]) -> list[str]:
            with copies.opened(target.parent, self._trial) as folder:
                copies.receive_file(stream, folder, target.name)
            return []

        await self._receive([copies.FILE_OUT, "bash", source_path, _identity(target)], receive, source_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """See ``BaseEnvironment``. What is no file, directory or link within what is copied is left out, and named in
        the log.

        Raises:
            FileNotFoundError: there is no such directory in the environment.
            CopyFailed, OSError: not all of it can be copied.
        """
        target = Path(target_dir)

        def receive(stream: IO[bytes]) -> list[str]:
            with copies.opened(target, self._trial) as folder:
                return copies.receive_tree(stream, folder)

        left_out = await self._receive(
            [copies.FOLDER_OUT, "bash", source_dir, _identity(target)], receive, source_dir
        )
        if left_out:
            self.logger.warning("left out of the copy of %s: %s", source_dir, "; ".join(left_out))

    async def _remove(self) -> None:
        """Remove the root: by rm, which needs no more memory and descriptors the deeper directories are, and in a user
        namespace, where modes keep nothing from it."""
        words = ("rm", "-rf", "--one-file-system", "--", str(self._root))
        with tempfile.TemporaryFile() as err:
            for before in (("unshare", "--user", "--map-root-user"), ()):
                process = await _start(
                    *before, *words, env=_environment(), stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL, stderr=err,
                )  # fmt: skip
                try:
                    await process.wait()
                finally:
                    await _end(process)
                if not self._root.exists():
                    break
            else:
                self.logger.warning("%s could not be removed: %s", self._root, _kept(err).strip()[-_SHOWN:])
        with contextlib.suppress(OSError):
            self._root.parent.rmdir()

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or WORKDIR

    async def _inside(
        self, words: Sequence[str], env: dict[str, str], stdin: Any, stdout: Any, stderr: Any
    ) -> asyncio.subprocess.Process:
        """Start ``bash -c`` with ``words`` in the environment.

        Raises:
            RuntimeError: it is not running.
        """
        if self._holder is None or self._holder.returncode is not None:
            raise RuntimeError("the environment is not running")
        outer = self._holder.pid
        return await _start(
            # The process namespace belongs to the outer user namespace, the mounts to the inner one.
            "nsenter", "--target", str(outer), "--user", "--preserve-credentials",
            f"--pid=/proc/{outer}/ns/pid_for_children",
            "nsenter", "--target", self._pid, "--user", "--preserve-credentials", "--mount", "--root", "--wd",
            *without_privileges(["/bin/bash", "-c", *words], env["PATH"]),
            env=env, stdin=stdin, stdout=stdout, stderr=stderr,
        )  # fmt: skip

    async def _send_tree(self, source: Path, target: str, without: Collection[str] = ()) -> None:
        def send(stream: IO[bytes]) -> None:
            copies.send_tree(source, stream, without)

        words = [copies.FOLDER_IN, "bash", target]
        try:
            await self._send([*words, "--unlink-first"], send, target)
        except copies.CopyFailed:  # a directory stands where a file is to be
            await self._send([*words, copies.IN_THE_WAY], send, target)

    async def _send(self, words: Sequence[str], send: Callable[[IO[bytes]], None], target: str) -> None:
        """Run a program in the environment that reads what ``send`` writes.

        Raises:
            CopyFailed: it has failed.
        """

        def all_of_it(ours: socket.socket) -> list[str]:
            with ours.makefile("wb") as stream:
                send(stream)
            ours.shutdown(socket.SHUT_WR)
            return []

        await self._copy(words, all_of_it, target, into=True)

    async def _receive(
        self, words: Sequence[str], receive: Callable[[IO[bytes]], list[str]], source: str
    ) -> list[str]:
        """Run a program in the environment, and return what ``receive`` makes of its output.

        Raises:
            FileNotFoundError: there is nothing to copy.
            CopyFailed: the program has failed.
        """

        def all_of_it(ours: socket.socket) -> list[str]:
            with ours.makefile("rb") as stream:
                found = receive(stream) if stream.peek(1) else []
                while stream.read(1 << 20):  # what tar puts behind the last file
                    pass
            return found

        return await self._copy(words, all_of_it, source, into=False)

    async def _copy(
        self, words: Sequence[str], work: Callable[[socket.socket], list[str]], path: str, into: bool
    ) -> list[str]:
        """Run a program in the environment whose input (``into``) or output is ``work``'s, in a thread."""
        ours, theirs = socket.socketpair()
        ours.settimeout(STALL_S)
        null = asyncio.subprocess.DEVNULL
        with ours, tempfile.TemporaryFile() as err:
            with theirs:
                process = await self._inside(
                    words, _environment(), theirs if into else null, null if into else theirs, err
                )
            working = asyncio.ensure_future(asyncio.to_thread(work, ours))
            try:
                await asyncio.wait({working})
                if working.exception() is None:
                    async with asyncio.timeout(STALL_S):
                        await process.wait()
            except TimeoutError:
                pass  # told below: it has not ended by itself
            finally:
                _kill(process)
                with contextlib.suppress(OSError):
                    ours.shutdown(socket.SHUT_RDWR)  # whatever holds the other end cannot keep the thread
                await asyncio.wait({working})
                await process.wait()
            return _outcome(path, process.returncode, working, _kept(err).strip()[-_SHOWN:], into)

    async def _hold(self) -> None:
        """Start the first process of the namespaces.

        Raises:
            RuntimeError: it does not start; the text says why.
        """
        env = _environment()
        words = script(self._root, self._trial, self._mounts, env["PATH"])
        with open(os.memfd_create("mounts"), "wb", buffering=0) as file:  # it may be longer than an argument
            file.write(words.encode())
            self._holder = await _start(
                "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
                "/bin/bash", f"/proc/self/fd/{file.fileno()}",
                env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, pass_fds=[file.fileno()],
            )  # fmt: skip
        assert self._holder.stdout is not None and self._holder.stderr is not None
        line = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                line = await self._holder.stdout.readline()
        word, _, pid = line.decode().strip().partition(" ")
        if word == "ready":
            self._pid = pid
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._holder.pid, signal.SIGKILL)
        why = (await self._holder.stderr.read(4096)).decode(errors="replace").strip()
        raise RuntimeError(
            f"environment_type local: the namespaces cannot be made: {why or 'no answer'}; it needs user namespaces"
        )


def _outcome(
    path: str, code: int | None, working: asyncio.Future[list[str]], said: str, into: bool
) -> list[str]:
    """What a copy has come to. ``code``, ``said``: of the program in the environment.

    Raises:
        FileNotFoundError: there is nothing to copy.
        CopyFailed, OSError: it was not made, or not all of it.
    """
    if code == copies.NOT_THERE:
        raise FileNotFoundError(errno.ENOENT, "there is no such file in the environment", path)
    if code == copies.THE_SAME:
        return []
    error = working.exception()
    if isinstance(error, TimeoutError):
        raise copies.CopyFailed(f"{path} cannot be copied: nothing came or went for {STALL_S:g} s") from error
    if error is not None and not isinstance(error, ConnectionError):
        raise error
    # 1: files have changed meanwhile, as they may where others work
    if error is not None or code not in ((0,) if into else (0, 1)):
        raise copies.CopyFailed(f"{path} cannot be copied: {said or f'its program ended with {code}'}")
    return working.result()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process and those that it started outside."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    _kill(process)
    await process.wait()


async def _start(*words: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a process in a session of its own. A caller that is cancelled meanwhile leaves none: asyncio itself would
    wait for ever for the end of a process whose pipes are not connected yet."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*words, **options, start_new_session=True)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _environment() -> dict[str, str]:
    path = system_path(os.environ.get("PATH", os.defpath))
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    return {**passed, "PATH": path, "TMPDIR": "/tmp"}


def _identity(path: Path) -> str:
    """What ``stat -c %d:%i`` says of a file in the environment that is this one of the machine."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _kept(file: IO[bytes]) -> str:
    """The beginning and the end of a command's output."""
    size = os.fstat(file.fileno()).st_size
    data = os.pread(file.fileno(), HEAD, 0)
    if size > HEAD:
        left_out = max(0, size - HEAD - TAIL)
        data += f"\n[{left_out} bytes of output left out]\n".encode() if left_out else b""
        data += os.pread(file.fileno(), TAIL, max(HEAD, size - TAIL))
    return data.decode(errors="replace")
