"""A real Slurm on this machine, without munge and with ports of its own: a controller and one node on loopback, or a
node on each of several hosts (``kit.net_hosts``). A job in partition ``high`` preempts those in ``low``, which are
queued again."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from kit.net_hosts import Hosts
from kit.ports import free_port
from kit.waiting import wait_until

KILL_WAIT_S = 30  # Slurm's default

_CONF = """
ClusterName=test
SlurmctldHost={head}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={controller}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait={kill_wait}
SlurmdParameters=config_overrides
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""
_SIZE = "CPUs=64 RealMemory=20000 State=UNKNOWN"
_PORTS = 17000, 17010  # of controller and nodes on hosts of their own, which have all ports


def refused() -> str:
    """Why this machine runs no Slurm for a test; "" if it does."""
    for program in ("slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Slurm:
    """A cluster whose files are in ``folder``. ``hosts``: those with the nodes n0, n1, ...; None: one node, here."""

    def __init__(self, folder: Path, hosts: Hosts | None = None, count: int = 1) -> None:
        self.folder, self._hosts = folder, hosts
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        if hosts is None:
            head, (controller, port) = "localhost", (free_port(), free_port())
            nodes = [
                f"NodeName=n0 NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} {_SIZE}"
            ]
        else:
            head, (controller, port) = f"n0({hosts.address(0)})", _PORTS
            nodes = [f"NodeName=n{n} NodeAddr={hosts.address(n)} Port={port} {_SIZE}" for n in range(count)]
        conf = folder / "slurm.conf"
        conf.write_text(
            _CONF.format(user=getpass.getuser(), folder=folder, head=head, kill_wait=KILL_WAIT_S,
                         controller=controller, nodes="\n".join(nodes))
        )  # fmt: skip
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start(0, "slurmctld", "-D", "-c")
        for number in range(count):
            self._start(number, "slurmd", "-D", "-N", f"n{number}")
        wait_until(
            lambda: self._asked("sinfo", "-h", "-p", "low", "-o", "%T %D") == f"idle {count}",
            what="idle nodes",
        )

    def _start(self, host: int, *words: str) -> None:
        with (self.folder / f"{words[0]}.{host}.out").open("wb") as out:
            command = [*self._on(host), *words]
            self._daemons.append(subprocess.Popen(command, env=self.env, stdout=out, stderr=out))

    def _on(self, host: int) -> tuple[str, ...]:
        return () if self._hosts is None else self._hosts.on(host)

    def tell(self, *words: str) -> str:
        """What a command of Slurm prints; it has to succeed."""
        command = [*self._on(0), *words]
        done = subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """The job's number. ``options``: of sbatch; they count more than those in the script."""
        out = f"--output={self.folder}/slurm-%j.out"
        return self.tell("sbatch", "--parsable", out, *options, script.as_posix())

    def job(self, number: str) -> dict[str, str]:
        """The fields that ``scontrol show job`` has of a job, such as JobState, ExitCode and Restarts."""
        words = self.tell("scontrol", "-o", "show", "job", number).split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def output(self, number: str) -> str:
        """What a job has printed."""
        return (self.folder / f"slurm-{number}.out").read_text()

    def end(self) -> None:
        """End its jobs, those of a test that has failed, and its daemons."""
        if self._asked("squeue", "-h", "-o", "%i"):
            self._asked("scancel", "--user", getpass.getuser())
            wait_until(lambda: not self._asked("squeue", "-h", "-o", "%i"), 180, "the end of all jobs")
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(60)

    def _asked(self, *words: str) -> str:
        command = [*self._on(0), *words]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False
        ).stdout.strip()


OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def over(slurm: Slurm, job: str, seconds: float = 300) -> str:
    """The state in which the job has ended."""
    return wait_until(
        lambda: next((s for s in OVER if slurm.job(job)["JobState"] == s), ""), seconds, "the job's end"
    )


def start_again(slurm: Slurm, job: str) -> None:
    """Start a job that was queued again; Slurm itself waits two minutes. In the second in which the job has ended its
    new start would be refused ("Job credential revoked")."""
    pending = time.time()
    wait_until(lambda: time.time() >= pending + 2, what="another second")
    slurm.tell("scontrol", "update", f"JobId={job}", "StartTime=now")
