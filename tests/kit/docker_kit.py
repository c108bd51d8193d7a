"""A real Docker daemon for tests: an image made of this machine's own files, and sandboxes as Harbor makes them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from liverl.agents.harbor.owned import Ledger, project_of

_PROGRAMS = (
    "sh",
    "bash",
    "sleep",
    "cat",
    "chmod",
    "chown",
    "mkdir",
    "ls",
    "tee",
    "env",
    "id",
    "rm",
    "find",
    "test",
)


def daemon() -> str:
    """Why there is no daemon with Compose to test with; "" if there is one."""
    for words in (("version", "--format", "{{.Server.Version}}"), ("compose", "version")):
        try:
            done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return ""


def docker(*words: str, check: bool = True) -> str:
    """The output of the docker program."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    assert not check or not done.returncode, done.stderr
    return done.stdout


def make_image(
    tag: str, programs: Sequence[str] = (), trees: Sequence[Path] = (), mounted: Sequence[Path] = ()
) -> None:
    """An image with a shell, out of files of this machine: no registry is asked. ``programs``: further ones, by name or
    path; ``trees``: directories that it has at the same place; ``mounted``: directories of which it has only the
    libraries of the system that their modules need."""
    files = {}
    for name in (*_PROGRAMS, *programs):
        program = shutil.which(name)
        assert program is not None, name
        name = os.path.basename(name)
        needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        files[f"bin/{name}"] = os.path.realpath(program)
        files |= {path.lstrip("/"): path for path in re.findall(r"(/\S+) \(0x", needs)}
    for tree in (*trees, *mounted):  # what extension modules of a Python need
        if modules := [str(path) for path in tree.rglob("*.so")]:
            needs = subprocess.run(["ldd", *modules], capture_output=True, text=True, check=False).stdout
            files |= {path.lstrip("/"): path for path in re.findall(r"(/\S+) \(0x", needs)}
    roots = tuple(f"{tree}/".lstrip("/") for tree in (*trees, *mounted))
    files = {name: path for name, path in files.items() if not name.startswith(roots)}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", dereference=True) as archive:
        for name, path in files.items():
            archive.add(path, name)
        archive.dereference = False
        for tree in trees:
            archive.add(tree, str(tree).lstrip("/"))
        for name, text in (("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"), ("etc/group", b"root:x:0:\n")):
            told = tarfile.TarInfo(name)
            told.size, told.mode = len(text), 0o644
            archive.addfile(told, io.BytesIO(text))
        for name in ("tmp", "root"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(folder)
    done = subprocess.run(
        ["docker", "import", "--change", "ENV PATH=/bin", "-", tag],
        input=data.getvalue(), capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr


class Sandboxes:
    """The sandboxes of one run, begun as a worker and Harbor do: ledger, overlay, ``docker compose up`` of a build."""

    def __init__(self, run_dir: Path, image: str, worker: str = "worker-1") -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir, self.image = run_dir, image
        self.ledger = Ledger(run_dir, worker, "attempt_001", os.environ)

    def task(self, extra: str = "") -> Path:
        """A task's directory; ``extra``: its own Compose file."""
        folder = self.run_dir / "task"
        (folder / "environment").mkdir(parents=True, exist_ok=True)
        (folder / "task.toml").write_text('version = "1"\n')
        (folder / "environment" / "Dockerfile").write_text(f"FROM {self.image}\nENV TASK=1\n")
        if extra:
            (folder / "environment" / "docker-compose.yaml").write_text(extra)
        return folder

    def files(self, trial: str, *, extra: str = "", kept: bool = False) -> list[str]:
        """Enter a trial in the ledger; returns the words before a command of Compose."""
        task = self.task(extra)
        overlay = self.ledger.begin(trial, task, kept=kept)
        base = self.run_dir / "base.json"
        build = {"context": str(task / "environment")}
        main = {"build": build, "pull_policy": "build", "command": ["sh", "-c", "sleep infinity"]}
        base.write_text(json.dumps({"services": {"main": main}}))
        own = [str(task / "environment" / "docker-compose.yaml")] if extra else []
        return [
            "compose",
            "-p",
            project_of(trial),
            *(w for f in (str(base), *own, str(overlay)) for w in ("-f", f)),
        ]

    def up(self, trial: str, *, extra: str = "", kept: bool = False) -> None:
        """Begin the sandbox of a trial."""
        docker(*self.files(trial, extra=extra, kept=kept), "up", "-d", "--wait")


def of_project(trial: str) -> dict[str, list[str]]:
    """What the daemon has of a trial's Compose project, by a way of its own: exact names, no label of ours."""
    project = project_of(trial)
    label = f"label=com.docker.compose.project={project}"
    found = {
        "container": docker("ps", "-aq", "--filter", label).split(),
        "network": docker("network", "ls", "-q", "--filter", label).split(),
        "volume": docker("volume", "ls", "-q", "--filter", label).split(),
        "image": docker("images", "-q", f"{project}-main").split(),
    }
    return {kind: names for kind, names in found.items() if names}
