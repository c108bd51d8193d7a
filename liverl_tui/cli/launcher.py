"""``launcher``: print what a batch system needs to run a configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.new_file import write_new
from liverl_tui.cli.numbers import COUNT
from liverl_tui.cli.options import UpOptions, as_path, config_options
from liverl_tui.cli.output import echo, echo_exact
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.plan.rayjob import RayJob
    from liverl.plan.sbatch import Job


@click.group("launcher")
def launcher_command() -> None:
    """Print what a batch system needs to run a configuration. Nothing is started or submitted."""


@launcher_command.command("slurm")
@click.option(
    "--nodes",
    type=COUNT,
    metavar="N",
    help="Number of nodes; default: infrastructure.nnodes of the configuration.",
)
@click.option(
    "--cpus-per-task",
    "cpus",
    type=COUNT,
    metavar="N",
    help="CPUs of each node; default: what Ray is told to have, without Ray 4 and 8 per GPU.",
)
@click.option(
    "--time",
    "limit",
    metavar="TIME",
    default="",
    help="Time limit of the job, as for sbatch: 24:00:00, 2-12. Default: that of the partition.",
)
@click.option("--partition", metavar="NAME", default="", help="Partition; default: that of the cluster.")
@click.option("--name", metavar="NAME", help="Name of the run and of the job (default: the current time).")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=as_path,
    help="Write the script to this new file; default: print it.",
)
@click.option("--run-root", metavar="DIR", callback=as_path, help="Directory of the runs.")
@config_options
def slurm_command(
    nodes: int | None, cpus: int | None, limit: str, partition: str, output: Path | None, **values: Any
) -> int:
    """Print an sbatch script that runs a configuration as a Slurm job.

    The job's one command is `up --resume-or-start` on the first node, and `join` on the others: a job that is queued
    again resumes the run. Two minutes before the time limit the run is stopped and the job queued again.

    The configuration is read anew when the job starts: its file, --set and --profile are named in the script, and
    variables come with sbatch. A secret given with --set is refused, because the script would hold it.
    """
    from liverl.plan.sbatch import NoJob, job_script

    options = UpOptions.of(values)
    _refuse_secrets(options.sets)
    try:
        job = _job(options, nodes, cpus, limit, partition)
    except NoJob as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    return _hand_over(job_script(job), output, "to submit it: sbatch")


@launcher_command.command("kuberay")
@click.option(
    "--nodes",
    type=COUNT,
    metavar="N",
    help="Number of pods with GPUs, that of the head included; default: infrastructure.nnodes of the configuration.",
)
@click.option(
    "--image", metavar="IMAGE", required=True, help="Image of the pods, with Ray, verl and liverl-tui."
)
@click.option(
    "--volume",
    metavar="CLAIM:PATH",
    required=True,
    help="Storage that all pods share: a PersistentVolumeClaim and where it is mounted.",
)
@click.option(
    "--cpus",
    type=COUNT,
    metavar="N",
    help="CPUs of each pod; default: what verl needs.",
)
@click.option("--memory", metavar="SIZE", default="", help="Memory of each pod: 1000Gi. Default: no limit.")
@click.option("--namespace", metavar="NAME", default="", help="Namespace; default: that of kubectl.")
@click.option("--name", metavar="NAME", help="Name of the run, and of the job (default: the current time).")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=as_path,
    help="Write the manifest to this new file; default: print it.",
)
@click.option(
    "--run-root", metavar="DIR", callback=as_path, help="Directory of the runs, as the pods see it."
)
@config_options
def kuberay_command(
    nodes: int | None,
    image: str,
    volume: str,
    cpus: int | None,
    memory: str,
    namespace: str,
    output: Path | None,
    **values: Any,
) -> int:
    """Print a RayJob that runs a configuration on a Ray cluster that KubeRay makes for it.

    The job's one command is `up --resume-or-start` in the pod of the head, with `ray.address` of that cluster: a job
    that is created again resumes the run.

    The configuration is read anew when the job starts: its file and the directory of the runs have to be on the
    volume, under the path that they have here. --set takes only values that a shell leaves as they are, and refuses
    secrets.
    """
    from liverl.plan.rayjob import manifest
    from liverl.plan.sbatch import NoJob

    options = UpOptions.of(values)
    _refuse_secrets(options.sets)
    try:
        job = _ray_job(options, nodes, image, volume, cpus, memory, namespace)
    except NoJob as error:
        raise CliError(str(error), ExitCode.USAGE) from None
    return _hand_over(manifest(job), output, "to start it: kubectl create -f")


def _hand_over(text: str, output: Path | None, how: str) -> int:
    """Print the text, or write it to a new file and say ``how`` that is used; returns the exit code."""
    if output is None:
        echo_exact(text, nl=False)
    else:
        write_new(output, text)
        echo(f"written: {output}; {how} {output}")
    return ExitCode.OK


def _ray_job(
    options: UpOptions,
    nodes: int | None,
    image: str,
    volume: str,
    cpus: int | None,
    memory: str,
    namespace: str,
) -> RayJob:
    """The RayJob of these options.

    Raises:
        ConfigError: the configuration is not valid.
        NoJob: it cannot be a RayJob.
    """
    from liverl.config import load_config, sizing
    from liverl.plan import ray, rayjob
    from liverl_tui.cli.target import load_target

    rayjob.check_names(image, memory, namespace)
    storage = rayjob.read_volume(volume)
    given = load_config(options.config, profile=options.profile, sets=options.sets).config
    rayjob.check_config(given)
    hosts = given.infrastructure.nnodes if nodes is None else nodes
    ours = (f"infrastructure.nnodes={hosts}", f"ray.address={rayjob.ADDRESS}")
    options = options._replace(sets=(*options.sets, *ours))
    target = load_target(options)
    for warning in target.loaded.warnings:
        echo(f"warning: {warning}", err=True)
    config, words = target.loaded.config, ("liverl-tui", *_up(options, target.run_dir, several=False))
    file = {} if options.config is None else {"--config": os.path.abspath(options.config)}
    own = {"the directory of the run (--run-root)": str(target.run_dir), **file}
    rayjob.check_paths(storage, own | ray.shared_paths(config))
    rayjob.check_words(words)
    target.plan()  # what it cannot start is said here, not in the pod
    gpus = config.infrastructure.ngpus_per_node
    return rayjob.RayJob(
        name=rayjob.job_name(target.run_dir.name),
        image=image,
        nodes=hosts,
        cpus=cpus or config.ray.num_cpus or sizing.cpus_per_host(config),
        gpus=gpus,
        devices=gpus if config.verl.device == "cuda" else 0,
        entrypoint=words,
        volume=storage,
        ray_version=rayjob.ray_version(config),
        wait=round(config.ray.node_deadline),
        memory=memory,
        namespace=namespace,
    )


def _job(options: UpOptions, nodes: int | None, cpus: int | None, limit: str, partition: str) -> Job:
    """The job of these options.

    Raises:
        ConfigError: the configuration is not valid.
        NoJob: it cannot be a job.
    """
    from liverl.config import load_config
    from liverl.plan import sbatch
    from liverl.util.file_systems import file_system
    from liverl_tui.cli.target import load_target

    sbatch.check_limits(limit, partition)
    if nodes is not None:
        options = options._replace(sets=(*options.sets, f"infrastructure.nnodes={nodes}"))
    given = load_config(options.config, profile=options.profile, sets=options.sets).config
    sbatch.check_hosts(given, given.infrastructure.node0_ip)
    target = load_target(options)
    for warning in target.loaded.warnings:
        echo(f"warning: {warning}", err=True)
    config = target.loaded.config
    several = config.infrastructure.nnodes > 1
    if several and (warning := sbatch.unshared(str(target.run_dir), file_system(target.run_dir))):
        echo(f"warning: {warning}", err=True)
    gpus = sbatch.gpus_per_node(config, target.plan())
    return sbatch.Job(
        name=target.run_dir.name,
        nodes=config.infrastructure.nnodes,
        gpus=gpus,
        cpus=cpus or sbatch.cpus_per_node(config, gpus),
        program=_program(),
        up=_up(options, target.run_dir, several=several),
        run_dir=str(target.run_dir),
        cwd=os.getcwd(),
        time=limit,
        partition=partition,
    )


def _up(options: UpOptions, run_dir: Path, *, several: bool) -> tuple[str, ...]:
    """The words of ``up``, with absolute paths. Of several hosts the first may be another one after a requeue, so its
    address, which the run has kept, is found anew."""
    sets = (*options.sets, "infrastructure.node0_ip=") if several else options.sets
    return (
        *("up", "--no-ui", "--yes", "--resume-or-start", "--name", run_dir.name),
        *("--run-root", str(run_dir.parent.parent)),
        *(("--config", os.path.abspath(options.config)) if options.config is not None else ()),
        *(("--profile", options.profile) if options.profile is not None else ()),
        *(word for setting in sets for word in ("--set", setting)),
    )


def _program() -> tuple[str, ...]:
    """The words that start this program on a node that has the same file system."""
    script = Path(sys.executable).with_name("liverl-tui")
    return (str(script),) if script.exists() else (sys.executable, "-m", "liverl_tui")


def _refuse_secrets(sets: tuple[str, ...]) -> None:
    from liverl.config.changes import is_secret
    from liverl.config.dump import holds_secret_name
    from liverl.config.secrets import FILE_SCHEME

    for setting in sets:
        key, _, value = setting.partition("=")
        if (is_secret(key.strip()) and value and not value.startswith(FILE_SCHEME)) or holds_secret_name(
            value
        ):
            raise CliError(
                f"--set {key.strip()}: the script would hold this secret; set it in the file of --config, as "
                f"{FILE_SCHEME}PATH, or by a variable",
                ExitCode.USAGE,
            )
