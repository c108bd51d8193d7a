"""Kinds of logs of hosts, sandboxes, proxies and clients that once got no line or no cause, rebuilt from public reports
with made-up names; and logs of agents that must get no claim."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from liverl.causes.judge import judge
from liverl.causes.reading import read_log


class Kind(NamedTuple):
    """``id``: of the cause; ``words``: in its first evidence."""

    log: str
    id: str
    words: str


KINDS = (
    Kind(
        '{"event": "started", "level": "info"}\n'
        '{"operation": "run", "error": "Error code: 400 - request (25837 tokens) exceeds the available context size '
        '(25088 tokens)", "event": "failed", "level": "error"}\n',
        "api-prompt-long-llama",
        "25837 tokens",
    ),
    Kind(
        "#12 4.221 npm warn deprecated a@1.0.6\n#12 98.31 npm error code ECONNRESET\n#12 98.31 npm error network read\n"
        '#12 ERROR: process "/bin/sh -c npm ci" did not complete successfully: exit code: 1\n',
        "npm-network",
        "ECONNRESET",
    ),
    Kind(
        "Cloning into 'a'...\nerror: RPC failed; curl 56 GnuTLS recv error (-54)\nfatal: early EOF\n"
        "fatal: index-pack failed\n",
        "fetch-cut",
        "RPC failed",
    ),
    Kind(
        "Apr 11 08:04:26 n1 systemd[9]: a.service: Failed to locate executable /usr/bin/a: No such file or directory\n"
        "Apr 11 08:04:26 n1 systemd[1]: a.service: Main process exited, code=exited, status=203/EXEC\n"
        "Apr 11 08:04:26 n1 systemd[1]: a.service: Failed with result 'exit-code'.\n",
        "unit-no-program",
        "/usr/bin/a",
    ),
    Kind(
        "Events:\n  Type     Reason                  Age  From     Message\n"
        "  Normal   Scheduled               23m  default-scheduler  assigned a to b\n"
        "  Warning  FailedCreatePodSandBox  22m  kubelet  Failed to create pod sandbox: failed to assign an IP address "
        "to container\n",
        "pod-no-address",
        "FailedCreatePodSandBox",
    ),
    Kind(
        "INFO     Starting deployment\n"
        "error running container: from /usr/bin/crun: sd-bus call: Permission denied\n"
        "ERRO[0002] did not get container create message from subprocess: EOF\n",
        "rootless-cgroup-bus",
        "sd-bus call",
    ),
    Kind(
        "Jul 17 15:19:00 n1 kubelet: I0717 15:19:00.673250   23 kubelet.go:1] sync\n"
        "Jul 17 15:19:02 n1 kubelet: E0717 15:19:02.673250   23 a.go:1] timeout expired waiting for volumes to attach",
        "volume-slow",
        "timeout expired",
    ),
    Kind(
        "2026-08-22 09:50:26.912 UTC [42] LOG:  starting PostgreSQL 13.13\n"
        '2026-08-22 09:50:26.915 UTC [42] FATAL:  lock file "a.lock" already exists\n'
        "2026-08-22 09:50:26.916 UTC [42] LOG:  database system is shut down\n",
        "postgres-running",
        "a.lock",
    ),
)

STEP = "(TaskRunner pid=8) step:{number} - actor/loss:0.1 - timing_s/step:92.1\n"
TRANSCRIPT = (
    "(AgentLoopWorker pid=9) $ git clone https://git.example.com/a.git\n"
    "(AgentLoopWorker pid=9) fatal: unable to access 'https://git.example.com/a.git/': Could not resolve host: "
    "git.example.com\n"
    "(AgentLoopWorker pid=9) $ npm ci\n(AgentLoopWorker pid=9) npm error code ECONNRESET\n"
    "(AgentLoopWorker pid=9) $ touch /logs/a\n"
    "(AgentLoopWorker pid=9) touch: cannot touch '/logs/a': No such file or directory\n"
)


def read(text: str, folder: Path) -> Path:
    path = folder / "x.log"
    path.write_text(text)
    return path


@pytest.mark.parametrize("kind", KINDS, ids=[kind.id for kind in KINDS])
def test_a_log_has_its_cause(kind: Kind, tmp_path: Path) -> None:
    cause = judge([read_log(read(kind.log, tmp_path), "x")]).cause
    assert cause is not None and cause.id == kind.id
    assert kind.words in cause.evidence[0].text


def test_what_agents_typed_and_got_is_no_symptom_of_a_run_that_goes_on(tmp_path: Path) -> None:
    log = STEP.format(number=1) + TRANSCRIPT + STEP.format(number=2)
    verdict = judge([read_log(read(log, tmp_path), "x")])
    assert (verdict.cause, verdict.symptoms) == (None, ())
