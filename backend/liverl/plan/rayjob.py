"""A RayJob of KubeRay with a configuration's numbers: what ``liverl-tui launcher kuberay`` prints. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import yaml
from msgspec import Struct

from liverl.config import conditions
from liverl.config.schema import RunConfig
from liverl.plan.sbatch import NoJob

# Where the run finds Ray: the entrypoint of a job runs beside the head, which listens on KubeRay's port.
ADDRESS = "127.0.0.1:6379"
LONGEST_NAME = 47  # characters of a RayJob's name (KubeRay's own limit: names of its pods are made of it)
# KubeRay gives the entrypoint to a shell of the submitter (BuildJobSubmitCommand), and Ray's job to another one: what
# they would change does not reach the program as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_./=:,@%+-]+")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY = re.compile(r"[1-9][0-9]{0,14}(k|M|G|T|Ki|Mi|Gi|Ti)?")
_RAY = re.compile(r"ray(?:\[[^\]]*\])?==([0-9][0-9A-Za-z.]*)")


class Volume(Struct, frozen=True):
    """The storage that all pods see. ``claim``: of a PersistentVolumeClaim; ``path``: where it is in each pod."""

    claim: str
    path: str


class RayJob(Struct, frozen=True):
    """What a manifest says. ``cpus``, ``gpus`` (that Ray counts), ``devices`` (that Kubernetes gives) and ``memory``
    ("" = no limit): of each node; ``nodes``: that of the head included; ``entrypoint``: the words that start or
    resume the run; ``wait``: seconds until all pods are there."""

    name: str
    image: str
    nodes: int
    cpus: int
    gpus: int
    devices: int
    entrypoint: tuple[str, ...]
    volume: Volume
    ray_version: str
    wait: int
    memory: str = ""
    namespace: str = ""


def job_name(run: str) -> str:
    """The name of the RayJob of a run: of Kubernetes' kind, which begins with a letter."""
    slug = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    return f"liverl-{slug}"[:LONGEST_NAME].rstrip("-")


def read_volume(text: str) -> Volume:
    """``CLAIM:/path`` of ``--volume``.

    Raises:
        NoJob: it is none.
    """
    claim, _, path = text.partition(":")
    whole = PurePosixPath(path)
    if _LABEL.fullmatch(claim) is None or not whole.is_absolute() or ".." in whole.parts or str(whole) == "/":
        raise NoJob(
            f"--volume {text!r} is no claim with its path; expected the name of a PersistentVolumeClaim and where it "
            "is mounted, such as shared:/shared"
        )
    return Volume(claim, str(whole))


def check_names(image: str, memory: str, namespace: str) -> None:
    """Check what is given for ``--image``, ``--memory`` and ``--namespace``; the last two may be "".

    Raises:
        NoJob: Kubernetes would not take it.
    """
    for option, value, pattern, expected in (
        ("--image", image, _IMAGE, "the name of an image, such as registry/liverl:1"),
        ("--memory", memory, _QUANTITY, "a quantity of Kubernetes, such as 1000Gi"),
        ("--namespace", namespace, _LABEL, "the name of a namespace"),
    ):
        if value and pattern.fullmatch(value) is None:
            raise NoJob(f"{option} {value!r} is not {expected}")


def check_config(config: RunConfig) -> None:
    """Check that a run of this configuration can use the Ray that KubeRay starts.

    Raises:
        NoJob: it cannot.
    """
    if not conditions.our_ray(config):
        raise NoJob(
            f"trainer.kind is {config.trainer.kind}, but a RayJob is a Ray cluster for verl; expected trainer.kind: "
            "verl and run.topology verl or in_process"
        )
    if not config.environments["verl"].venv_path and not config.environment.venv_path:
        raise NoJob(
            "environments.verl.venv_path is not set, but the pods' Ray is that of the image, and verl has to run in "
            "the same Python; set it to that of the image, or to self, the one that runs liverl-tui"
        )


def check_paths(volume: Volume, paths: dict[str, str]) -> None:
    """Check that pods see these paths. ``paths``: where each is given -> the path.

    Raises:
        NoJob: one is not on the volume.
    """
    for where, path in paths.items():
        if not PurePosixPath(path).is_relative_to(volume.path):
            raise NoJob(
                f"{where} is {path}, which the pods do not see; expected a path below {volume.path}, where --volume "
                "mounts the shared storage"
            )


def check_words(words: tuple[str, ...]) -> None:
    """Check that the words reach the program as they are.

    Raises:
        NoJob: one would not.
    """
    for word in words:
        if _PLAIN.fullmatch(word) is None:
            raise NoJob(
                f"{word!r:.100} cannot be in the entrypoint of a RayJob, which two shells read; expected letters, "
                "digits and _ . / = : , @ % + -: set it in the file of --config"
            )


def ray_version(config: RunConfig) -> str:
    """The version of Ray that the configuration names.

    Raises:
        NoJob: it names none.
    """
    for requirement in config.environments["verl"].requirements:
        if match := _RAY.match(requirement):
            return match[1]
    raise NoJob("environments.verl.requirements name no version of Ray; expected that of the image")


def manifest(job: RayJob) -> str:
    """The text of the manifest, for ``kubectl``."""
    body = yaml.safe_dump(_document(job), sort_keys=False, width=1_000_000, allow_unicode=True)
    return "\n".join([*_header(job), body])


def _header(job: RayJob) -> list[str]:
    where = f" -n {job.namespace}" if job.namespace else ""
    return [
        f"# The run {job.name} as a RayJob of KubeRay (1.5.1 or newer, for the token) on {job.nodes} pods.",
        "#",
        f"#   kubectl create{where} -f THIS_FILE    # starts the run, or resumes it from its newest checkpoint",
        f"#   kubectl delete{where} rayjob {job.name}    # ends it",
        "#",
        f"# The image needs Ray {job.ray_version}, verl and liverl-tui. All pods see the claim {job.volume.claim} at "
        f"{job.volume.path}: runs, model,",
        "# data and configuration are there. To run it again, delete the RayJob and create it anew.",
    ]


def _document(job: RayJob) -> dict[str, Any]:
    head = {"dashboard-host": "0.0.0.0"}  # for KubeRay; it asks for the token
    cluster: dict[str, Any] = {
        "rayVersion": job.ray_version,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {**head, **_counts(job)},
            "template": _pod(job, "ray-head"),
        },
    }
    if job.nodes > 1:
        count = job.nodes - 1
        cluster["workerGroupSpecs"] = [
            {
                "groupName": "workers",
                "replicas": count,
                "minReplicas": count,
                "maxReplicas": count,
                "rayStartParams": _counts(job),
                "template": _pod(job, "ray-worker"),
            }
        ]
    metadata = {"name": job.name, **({"namespace": job.namespace} if job.namespace else {})}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata,
        "spec": {
            # Submitted once all pods are there, which SidecarMode does not wait for; the entrypoint runs in the head's.
            "submissionMode": "K8sJobMode",
            "entrypoint": " ".join(job.entrypoint),
            "backoffLimit": 0,  # a new attempt is begun by whoever looked at the last one
            "preRunningDeadlineSeconds": job.wait,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster,
        },
    }


def _counts(job: RayJob) -> dict[str, str]:
    """What Ray is told to have. KubeRay takes texts only, and drops numbers in silence."""
    return {"num-cpus": str(job.cpus), "num-gpus": str(job.gpus)}


def _pod(job: RayJob, container: str) -> dict[str, Any]:
    resources: dict[str, dict[str, Any]] = {"requests": {"cpu": job.cpus}}
    limits: dict[str, Any] = {}
    if job.memory:
        resources["requests"]["memory"] = limits["memory"] = job.memory
    if job.devices:
        limits["nvidia.com/gpu"] = job.devices
    if limits:
        resources["limits"] = limits
    return {
        "spec": {
            "containers": [
                {
                    "name": container,
                    "image": job.image,
                    "resources": resources,
                    "volumeMounts": [
                        {"name": "shared", "mountPath": job.volume.path},
                        {"name": "shm", "mountPath": "/dev/shm"},
                    ],
                }
            ],
            "volumes": [
                {"name": "shared", "persistentVolumeClaim": {"claimName": job.volume.claim}},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
            ],
        }
    }
