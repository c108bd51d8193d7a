"""An environment of Harbor's without containers: the machine's own files, with directories of the trial's own in them.

Runs in Harbor's interpreter, and imports nothing of liverl. Each environment has a user, a mount and a process
namespace. What runs in it has its own /app, /logs, /tests, /solution and /tmp, and ends with the environment, daemons
included. All else is the machine's: its files, network, memory and user. It isolates paths, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

# What the environment has of its own, whether or not the machine has it too.
OWN = ("app", "logs", "tests", "solution", "harbor", "installed-agent", "tmp", "proc")
WORKDIR = "/app"
# Of the runner's environment only these are passed on, since agents run what a model wrote; the last three are those
# by which liverl finds what a run has left behind.
PASSED = ("PATH", "HOME", "LANG", "LIVERL_RUN", "LIVERL_RUN_DIR", "LIVERL_GENERATION")
HEAD, TAIL = (
    8 << 20,
    1 << 20,
)  # bytes of a command's output that are kept: from its beginning, and from its end
START_S, STOP_S = 30.0, 10.0
_BUILD_FILES = ("Dockerfile", "docker-compose.yaml")
_WAIT = 'echo "ready $0"; exec >/dev/null 2>&1; cd /; while read -r _; do :; done'
_SYSTEM = "/usr/local/sbin:/usr/sbin:/sbin"  # chroot is there, and users often have them not on their PATH
_NEEDED = ("unshare", "nsenter", "mount", "chroot", "bash")


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

    async def start(self, force_build: bool) -> None:
        """Make the root directory and the namespaces; ``force_build`` changes nothing, as nothing is built. The files
        beside the task's Dockerfile are put into the working directory."""
        trial = self.trial_paths.trial_dir.resolve()
        for folder in (trial, *(path for path in trial.iterdir() if path.is_dir())):
            folder.chmod(folder.stat().st_mode & ~0o022)  # Harbor lets everybody write them
        # One trial may have several environments: its own, and one of its verifier.
        self._root = trial / "root" / self.session_id.rpartition("__")[2]
        self._layout = Layout(self._root, [mount["target"] for mount in self._mounts])
        workdir = self._workdir.strip("/")
        for name in (*OWN, *([workdir] if workdir else ())):
            if self._layout.on_host(f"/{name}") is None:
                (self._root / name).mkdir(parents=True, exist_ok=True)
        await self._hold()
        if self._enable_environment_dir_upload and self.environment_dir.is_dir():
            ignore = shutil.ignore_patterns(*_BUILD_FILES)
            await asyncio.to_thread(_copy_tree, self.environment_dir, self._host(self._workdir), ignore)

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
        if delete and hasattr(self, "_root"):
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._root.parent.rmdir()

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
        if self._holder is None or self._holder.returncode is not None:
            raise RuntimeError("the environment is not running")
        words = f"cd {shlex.quote(cwd or self._workdir)} || exit\n{command}"
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = await _start(
                "nsenter", "--target", self._pid, "--user", "--preserve-credentials", "--mount", "--pid",
                "--root", "--wd", "/bin/bash", "-c", words,
                env={**_environment(), **(self._merge_env(env) or {})},
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
            try:
                async with asyncio.timeout(timeout_sec):
                    await process.wait()
            except TimeoutError:
                raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            return ExecResult(stdout=_kept(out), stderr=_kept(err), return_code=process.returncode)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """See ``BaseEnvironment``."""
        target = self._host(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(shutil.copy, source_path, target)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """See ``BaseEnvironment``."""
        await asyncio.to_thread(_copy_tree, source_dir, self._host(target_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """See ``BaseEnvironment``."""
        source = self._host(source_path)
        if source.resolve() != Path(target_path).resolve():
            await asyncio.to_thread(shutil.copy, source, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """See ``BaseEnvironment``."""
        source = self._host(source_dir)
        if source.resolve() != Path(target_dir).resolve():
            await asyncio.to_thread(_copy_tree, source, target_dir)

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or WORKDIR

    def _host(self, path: str) -> Path:
        """The file on the machine that ``path`` is in the environment."""
        path = os.path.normpath(f"/{path.lstrip('/')}")
        for mount in sorted(self._mounts, key=lambda mount: -len(mount["target"])):
            target = os.path.normpath(mount["target"])
            if path == target or path.startswith(f"{target}/"):
                return Path(mount["source"] + path[len(target) :])
        return self._layout.on_host(path) or self._root / path.lstrip("/")

    async def _hold(self) -> None:
        """Start the first process of the namespaces.

        Raises:
            RuntimeError: it does not start; the text says why.
        """
        self._holder = await _start(
            "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
            "/bin/bash", "-c", self._script(),
            env=_environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
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

    def _script(self) -> str:
        """What the first process does: mount, say that it is ready, and wait until the runner closes its input."""
        root = shlex.quote(str(self._root))
        lines = ["set -e", *self._layout.commands()]
        for mount in self._mounts:
            path = f"{self._root}{mount['target']}"
            source, target, above = map(shlex.quote, (mount["source"], path, os.path.dirname(path)))
            if Path(mount["source"]).is_dir():
                lines.append(f"mkdir -p {target}")
            else:
                lines.append(f"mkdir -p {above}; [ -e {target} ] || : > {target}")
            lines.append(f"mount -B {source} {target}")
            if mount.get("read_only"):
                lines.append(f"mount -o remount,bind,ro {target}")
        return "\n".join([
            *lines,
            # In a container with a masked /proc a new one is refused; then processes outside are seen too.
            f"mount -t proc proc {root}/proc 2>/dev/null || mount -R /proc {root}/proc",
            "read -r pid _ < /proc/self/stat",  # as it is called outside
            # bash: it also reaps what is left of its descendants
            f"exec chroot {root} /bin/bash -c {shlex.quote(_WAIT)} \"$pid\"",
        ])  # fmt: skip


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
    path = f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM}"
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    return {**passed, "PATH": path, "TMPDIR": "/tmp"}


def _copy_tree(source: Path | str, target: Path | str, ignore: Any = None) -> None:
    shutil.copytree(source, target, ignore=ignore, symlinks=True, dirs_exist_ok=True)


def _kept(file: IO[bytes]) -> str:
    """The beginning and the end of a command's output."""
    size = os.fstat(file.fileno()).st_size
    data = os.pread(file.fileno(), HEAD, 0)
    if size > HEAD:
        left_out = max(0, size - HEAD - TAIL)
        data += f"\n[{left_out} bytes of output left out]\n".encode() if left_out else b""
        data += os.pread(file.fileno(), TAIL, max(HEAD, size - TAIL))
    return data.decode(errors="replace")
