"""How a failure is put into words: who, in which step, by whom killed, and the command that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from liverl.causes.inputs.shown import words_of
from liverl.model import Cause
from liverl.observe.oom_kills import OomKills, counter_files
from liverl.rundir import commands
from liverl.rundir.commands import attach_command, resume_command

STEP = "step:80 - actor/pg_loss:0.0 - actor/ppo_kl:8.1e-11"


@pytest.mark.parametrize(
    ("service", "text", "step", "words"),
    [
        ("trainer", "killed by SIGKILL", 81, "trainer killed by SIGKILL in step 81"),
        (
            "trainer",
            "killed by SIGKILL by the OOM killer",
            2,
            "trainer killed by SIGKILL by the OOM killer in step 2",
        ),
        (
            "trainer",
            "killed by SIGKILL; no space left",
            81,
            "trainer killed by SIGKILL in step 81; no space left",
        ),
        ("trainer", "ValueError: x; y", 3, "trainer in step 3: ValueError: x; y"),
        ("trainer", "ValueError: x", None, "trainer: ValueError: x"),
        ("proxy", "killed by SIGKILL", 3, "proxy killed by SIGKILL"),
        (None, "stopped by me", 3, "stopped by me"),
    ],
)
def test_who_failed_and_where(service: str | None, text: str, step: int | None, words: str) -> None:
    assert words_of(Cause(service, text, 0.0), step) == words


def test_oom_kills_are_told_for_half_a_minute() -> None:
    group, host = Path("/group"), Path("/host")
    texts = {host: "pgfault 1\noom_kill 7\n"}

    def read(path: Path) -> str:
        if path not in texts:
            raise FileNotFoundError(path)
        return texts[path]

    kills = OomKills((group, host), read)
    assert kills.evidence(0.0) == "", "older ones are none of this run"
    texts[host] = "oom_kill 8\n"
    assert kills.evidence(10.0) == "oom_kill in /host has risen to 8"
    assert kills.evidence(40.0) != "" and kills.evidence(40.1) == ""
    texts.clear()
    assert kills.evidence(41.0) == ""
    assert OomKills((group,), read).evidence(0.0) == ""


def test_where_oom_kills_are_counted() -> None:
    host = Path("/proc/vmstat")
    assert counter_files("0::/a.slice\n") == [Path("/sys/fs/cgroup/a.slice/memory.events"), host]
    old = "5:cpu:/x\n4:hugetlb,memory:/job_1\n"
    assert counter_files(old) == [Path("/sys/fs/cgroup/memory/job_1/memory.oom_control"), host]
    assert counter_files("") == [host]


def test_commands_are_short_and_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "default_run_root", lambda: Path("/home/a/runs"))
    assert resume_command(Path("/home/a/runs/liverl/k")) == "liverl-tui up --resume liverl/k"
    elsewhere = resume_command(Path("/a b/liverl/k"))
    assert elsewhere == "liverl-tui up --resume liverl/k --run-root '/a b'"
    assert attach_command(Path("/a b/liverl/k")) == "liverl-tui attach '/a b/liverl/k'"
