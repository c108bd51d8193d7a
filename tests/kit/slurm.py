"""A real Slurm on this machine: a controller and one node, on loopback, without munge and with ports of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path

from kit.waiting import wait_until
from liverl.procs import procfs

KILL_WAIT_S = 30  # Slurm's default

_CONF = """
ClusterName=one
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={controller}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait={kill_wait}
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=64 RealMemory=20000 State=UNKNOWN
PartitionName=low Nodes=n0 Default=YES MaxTime=INFINITE State=UP
"""


def refused() -> str:
    """Why this machine runs no Slurm for a test; "" if it does."""
    for program in ("slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "squeue"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Slurm:
    """A cluster with one node, whose files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        conf = folder / "slurm.conf"
        conf.write_text(
            _CONF.format(user=getpass.getuser(), folder=folder, host=socket.gethostname(), kill_wait=KILL_WAIT_S,
                         controller=procfs.free_port(), node=procfs.free_port())
        )  # fmt: skip
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = {**os.environ, "SLURM_CONF": str(conf)}
        self._daemons: list[subprocess.Popen[bytes]] = []
        for words in (("slurmctld", "-D", "-c"), ("slurmd", "-D", "-N", "n0")):
            with (folder / f"{words[0]}.out").open("wb") as out:
                self._daemons.append(subprocess.Popen(words, env=self.env, stdout=out, stderr=out))
        wait_until(lambda: self._asked("sinfo", "-h", "-o", "%T") == "idle", 60, "an idle node")

    def tell(self, *words: str) -> str:
        """What a command of Slurm prints; it has to succeed."""
        done = subprocess.run(
            words, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """The job's number. ``options``: of sbatch; they count more than those in the script."""
        return self.tell("sbatch", "--parsable", *options, script.as_posix())

    def job(self, number: str) -> dict[str, str]:
        """The fields that ``scontrol show job`` has of a job, such as JobState, ExitCode and Restarts."""
        words = self.tell("scontrol", "-o", "show", "job", number).split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}

    def end(self) -> None:
        """End its daemons. Jobs have to have ended."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)

    def _asked(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=False).stdout.strip()
