"""Marked secrets in all that can hold one, and a search for them in everything that a run and its views write."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kit.runs import ToyRun
from kit.terminal import Terminal, clean_environment
from kit.waiting import wait_until

from liverl.procs import procfs

MARK = "mk7f3a19c5"
# Variables of the caller, each with a value that says which one it is.
CALLER = {
    "WANDB_API_KEY": f"{MARK}wandb",
    "HF_TOKEN": f"hf_{MARK}0000000000000000",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}aws",
    "OPENAI_API_KEY": f"sk-{MARK}openai",
    "ANTHROPIC_API_KEY": f"sk-{MARK}anthropic",
    "GITHUB_TOKEN": f"ghp_{MARK}0000000000000000",
    "HTTPS_PROXY": f"http://me:{MARK}proxy@127.0.0.1:9",
    "HTTP_PROXY": f"http://me:{MARK}proxy@127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--json"),
    ("events",),
    ("events", "--json"),
    ("logs",),
    ("attach", "--plain", "--readonly"),
)
SCREENS = ("E", "A", "M", "V", ":", "?", "2")


def secrets_of(run_dir: Path) -> dict[str, bytes]:
    """Name -> value of each secret of a run itself, and the mark that is in all those of the caller."""
    own = {path.name: path.read_bytes().strip() for path in (run_dir / "secrets").iterdir() if path.is_file()}
    return {"the caller's": MARK.encode(), **{name: value for name, value in own.items() if len(value) > 8}}


def in_files(folder: Path, secrets: Mapping[str, bytes]) -> list[str]:
    """Files below a folder that hold a secret and are not private to their owner, or are not meant to."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        place = path.relative_to(folder).as_posix()
        for name, value in secrets.items():
            if value in data:
                mode = stat.S_IMODE(path.stat().st_mode)
                meant = "/secrets/" in f"/{place}" or place.endswith("proxy/litellm.yaml")
                if mode & 0o077 or not meant:
                    found.append(f"{place} ({mode:o}): {name}")
    return found


def in_command_lines(run: ToyRun, secrets: Mapping[str, bytes]) -> list[str]:
    """Processes of the run with a secret among their arguments."""
    pids = [*run.tagged(), *run.backends]
    lines = {pid: procfs.command_line(pid) for pid in pids}
    return [
        f"pid {pid}: {name}"
        for pid, line in lines.items()
        for name, value in secrets.items()
        if value.decode() in line
    ]


def outputs(run: ToyRun) -> Iterator[tuple[str, bytes]]:
    """What each command prints."""
    env = {**os.environ, **CALLER}
    for command in COMMANDS:
        argv = [sys.executable, "-m", "liverl_tui", command[0], "--run", str(run.run_dir), *command[1:]]
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                output, _ = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:  # it follows the run
                process.terminate()
                output, _ = process.communicate()
        yield " ".join(command), output


def pictures(run: ToyRun) -> Iterator[tuple[str, bytes]]:
    """Every screen of the interface: what the terminal got, and the screenshots that its key saves."""
    env = clean_environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""), **CALLER)
    argv = [sys.executable, "-m", "liverl_tui", "attach", "--run", str(run.run_dir)]
    folder = run.run_dir / "screenshots"
    with Terminal(argv, size=(200, 50), env=env) as terminal:
        terminal.wait_for(lambda text: "step" in text or "ready" in text)
        for key in SCREENS:
            for pressed in (key, "P", "escape"):  # an Escape and the key after it at once would be one key
                seen = terminal.bytes
                terminal.press(pressed)
                wait_until(lambda seen=seen: terminal.bytes > seen, what=f"an answer to {pressed}")  # type: ignore[misc]
                if pressed == "P":
                    time.sleep(1.1)  # the names of screenshots hold a second
                yield f"terminal, {key}", terminal.text.encode()
    for path in folder.glob("*.svg"):
        yield path.name, path.read_bytes().replace(b"&#160;", b" ")
