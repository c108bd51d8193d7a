"""A job script for Slurm with a configuration's numbers: what ``liverl-tui launcher slurm`` prints. Pure."""

from __future__ import annotations

import re
import shlex

from msgspec import Struct

from liverl.config import conditions, sizing
from liverl.config.schema import RunConfig
from liverl.plan.spec import Plan
from liverl.util.file_systems import FileSystem

# Seconds before the time limit at which the run is told to stop: for its stop stages. Slurm may send the signal up to
# 60 s earlier than asked for (sbatch(1), --signal), so that ``batch.margin`` is 180 by default.
WARN_S = 120
# A shorter limit would end the run while it starts; sbatch sends the signal at once if the limit is below ``WARN_S``.
SHORTEST_S = 600
# A rule of thumb where nobody counts CPUs (only Ray does): processes beside the replicas, and those of one GPU.
BASE_CPUS, CPUS_PER_GPU = 4, 8

_TIME = re.compile(
    r"(?:(?P<days>\d{1,5})-)?(?P<first>\d{1,7})(?::(?P<second>\d{1,5}))?(?::(?P<third>\d{1,5}))?"
)
_PARTITION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,199}")


class NoJob(Exception):
    """Why no job script can be made of this, in one sentence that names key and value."""


class Job(Struct, frozen=True):
    """What a job script says. ``gpus``, ``cpus``: of each node. ``time``: as for ``sbatch --time``, "" = that of the
    partition. ``program``: the words that start ``liverl-tui``; ``up``: those behind them that start or resume the
    run."""

    name: str
    nodes: int
    gpus: int
    cpus: int
    program: tuple[str, ...]
    up: tuple[str, ...]
    run_dir: str
    cwd: str
    time: str = ""
    partition: str = ""


def limit_seconds(text: str) -> int | None:
    """The seconds of a time limit as ``sbatch --time`` reads it: ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` or
    ``D-H:M:S``; None if it is none (sbatch(1))."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    first, second, third = (int(match[part] or 0) for part in ("first", "second", "third"))
    if match["days"] is not None:
        return int(match["days"]) * 86400 + first * 3600 + second * 60 + third
    if match["third"] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def check_limits(time: str, partition: str) -> None:
    """Check what is given for ``--time`` and ``--partition``; "" is always right.

    Raises:
        NoJob: Slurm would not take it, or the run could not work with it.
    """
    seconds = limit_seconds(time) if time else SHORTEST_S
    if seconds is None:
        raise NoJob(
            f"--time {time!r} is no time limit; expected M, H:M:S, D-H or D-H:M:S, such as 24:00:00 for a day"
        )
    if seconds < SHORTEST_S:
        raise NoJob(
            f"--time {time} is {seconds} s; expected at least {SHORTEST_S // 60} minutes, because the run is stopped "
            f"{WARN_S} s before the limit and has to start first"
        )
    if partition and _PARTITION.fullmatch(partition) is None:
        raise NoJob(
            f"--partition {partition!r} is no name of a partition, or of several with ',' between them"
        )


def check_hosts(config: RunConfig, address: str) -> None:
    """Check that hosts of a job can be those of the run. ``config``: with the job's number of nodes. ``address``:
    ``infrastructure.node0_ip`` as the user has set it, before it is resolved to an address of this host.

    Raises:
        NoJob: they cannot.
    """
    nodes = config.infrastructure.nnodes
    if nodes == 1:
        return
    what = f"infrastructure.nnodes is {nodes}"
    if config.ray.address:
        raise NoJob(
            f"{what}, and ray.address {config.ray.address} names a Ray cluster that is running already; a job starts "
            "its own on its nodes: leave ray.address empty, or give --nodes 1"
        )
    if not conditions.joined_hosts(config):
        raise NoJob(
            f"{what}, but with trainer.kind {config.trainer.kind} nothing is started on other hosts; expected 1 "
            "(--nodes 1), or trainer.kind: verl"
        )
    if address:
        raise NoJob(
            f"infrastructure.node0_ip is {address}, but which host is the first is known only when the job starts; "
            "leave it empty for the address of that host's default route"
        )


def unshared(run_dir: str, found: FileSystem | None) -> str:
    """Why the other nodes of a job do not see the directory of its run, as far as this host can tell; "" if it is on a
    network's file system, or that is not known."""
    if found is None or found.network:
        return ""
    return (
        f"the run's directory {run_dir} is on a file system of this host ({found}); every node must see it under this "
        "path: give --run-root DIR on a file system that all nodes share, or set run.run_root"
    )


def gpus_per_node(config: RunConfig, plan: Plan) -> int:
    """The GPUs that the run needs on each node; 0 also where they are those of an existing Ray cluster."""
    if conditions.our_ray(config):
        uses = conditions.our_head(config) and config.verl.device == "cuda"
    else:
        template = plan.replica_template
        uses = (
            conditions.command(config)
            or any(s.gpus for s in plan.services)
            or bool(template and template.gpus)
        )
    return config.infrastructure.ngpus_per_node if uses else 0


def cpus_per_node(config: RunConfig, gpus: int) -> int:
    """The CPUs to ask for on each node with ``gpus`` GPUs: as many as Ray is told to have, else a rule of thumb."""
    if conditions.our_head(config):
        return config.ray.num_cpus or sizing.cpus_per_host(config)
    return BASE_CPUS + CPUS_PER_GPU * gpus


def job_script(job: Job) -> str:
    """The text of the script, for ``sbatch``. Each value is quoted for a shell; those of ``#SBATCH`` lines are numbers
    and names."""
    return "\n".join([*_header(job), "", *_body(job), ""])


def _header(job: Job) -> list[str]:
    several = job.nodes > 1
    options = {
        "job-name": job.name,
        "nodes": job.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": job.cpus,
        "gpus-per-node": job.gpus or None,
        "partition": job.partition or None,
        "time": job.time or None,
    }
    where = f" on {job.nodes} nodes: it starts on the first, and the others join it" if several else ""
    return [
        "#!/usr/bin/env bash",
        f"# The run {job.name} as a Slurm job{where}.",
        "#",
        "#   sbatch THIS_FILE            # starts the run; once more: resumes it; when it is done: does nothing",
        "#   scancel JOB                 # stops it (exit code 5); it is not queued again",
        "#",
        "# A job that Slurm queues again (preemption, a lost node, scontrol requeue) resumes the run from its newest",
        f"# checkpoint. {WARN_S} s before the time limit the run is stopped, and the job queues itself again.",
        *(f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None),
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        f"#SBATCH --signal=B:USR1@{WARN_S}",
        "set -u",
    ]


def _body(job: Job) -> list[str]:
    program = f"program=({shlex.join(job.program)})"
    return [
        f"cd -- {shlex.quote(job.cwd)} || exit 1",
        program,
        "",
        "run='' stop='' limit=''",
        "# Slurm also signals the run itself, except with USR1; it counts signals in short succession as one.",
        """tell() { signalled=yes stop=yes; [ -z "$run" ] || kill -TERM "$run" 2>/dev/null; }""",
        "trap tell TERM INT",
        "trap 'limit=yes; tell' USR1",
        "",
        *(_others(job) if job.nodes > 1 else ()),
        f'"${{program[@]}}" {shlex.join(job.up)} &',
        "run=$!",
        '[ -z "$stop" ] || kill -TERM "$run"',
        "",
        "# A signal ends `wait` early: then wait again. 127: it had ended before.",
        "code=127 signalled=yes",
        'while [ -n "$signalled" ]; do',
        "  signalled=''",
        '  wait "$run"',
        "  last=$?",
        '  [ "$last" = 127 ] || code=$last',
        "done",
        "",
        *(_END_OTHERS if job.nodes > 1 else ()),
        "# 5: stopped before its last step, and can be resumed.",
        'if [ "$code" = 5 ] && [ -n "$limit" ]; then',
        '  scontrol requeue "$SLURM_JOB_ID"',
        "fi",
        'exit "$code"',
    ]


_END_OTHERS = (
    "# srun would kill its tasks at once, so they are told to end, unless they have: they are the job's first step.",
    'kill -0 "$others" 2>/dev/null && scancel --signal=TERM "$SLURM_JOB_ID.0" 2>/dev/null',
    'wait "$others"',
)


def _others(job: Job) -> list[str]:
    count = job.nodes - 1
    step = [
        *(
            "srun",
            "--overlap",
            "--relative=1",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
        ),
        *(f"--cpus-per-task={job.cpus}", "--kill-on-bad-exit=0"),  # srun does not inherit --cpus-per-task
        *((f"--gpus-per-node={job.gpus}",) if job.gpus else ()),
    ]
    return [
        f'{shlex.join(step)} "${{program[@]}}" join --next {shlex.quote(job.run_dir)} &',
        "others=$!",
    ]
