"""The RayJob of ``liverl-tui launcher kuberay``: its numbers are the configuration's, it fits KubeRay's definition, and
no secret is in it."""

from __future__ import annotations

import copy
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from kit.crd import faults

from liverl.plan.rayjob import LONGEST_NAME, Volume, job_name, read_volume
from liverl.plan.sbatch import NoJob
from liverl_tui.cli.launcher import launcher_command

DATA = Path(__file__).parents[1] / "data" / "kuberay"
SPEC = json.loads((DATA / "rayjob_fields.json").read_text())["spec"]
WHERE = ("--image", "reg/liverl:1", "--volume", "shared:/shared", "--run-root", "/shared/runs")
VERL = ("environments.verl.venv_path=self", "run.topology=in_process", "model.model_path=smoke:/shared/smoke")


def printed(*words: str, sets: tuple[str, ...] = VERL, profile: str = "cpu-verl") -> str:
    given = [word for one in sets for word in ("--set", one)]
    words = ("kuberay", "--name", "night", "--profile", profile, *WHERE, *given, *words)
    done = CliRunner().invoke(launcher_command, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def job(*words: str, sets: tuple[str, ...] = VERL, profile: str = "cpu-verl") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(printed(*words, sets=sets, profile=profile))
    return found


def groups(found: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = found["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster.get("workerGroupSpecs", ())]


def pod(group: dict[str, Any]) -> dict[str, Any]:
    (container,) = group["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


GPU_SETS = (
    *("environments.verl.venv_path=self", "run.topology=in_process", "model.model_path=/shared/m"),
    *("data.train_index=/shared/t.parquet", "data.val_index=/shared/v.parquet"),
)


def test_the_numbers_are_those_of_the_configuration() -> None:
    found = job("--nodes", "2", "--memory", "100Gi", "--namespace", "rl", sets=GPU_SETS, profile="h200-smoke")
    assert found["metadata"] == {"name": "liverl-night", "namespace": "rl"}
    spec = found["spec"]
    assert (spec["backoffLimit"], spec["preRunningDeadlineSeconds"], spec["submissionMode"]) == (
        0,
        1800,
        "K8sJobMode",
    )
    assert spec["rayClusterSpec"]["rayVersion"] == "2.60.0"
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    head, workers = groups(found)
    assert [workers[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [1, 1, 1]
    for group in (head, workers):
        cpus = group["rayStartParams"]["num-cpus"]
        assert group["rayStartParams"]["num-gpus"] == "2" and int(cpus) > 2
        assert pod(group)["image"] == "reg/liverl:1"
        assert pod(group)["resources"] == {
            "requests": {"cpu": int(cpus), "memory": "100Gi"},
            "limits": {"memory": "100Gi", "nvidia.com/gpu": 2},
        }
        mounts = {mount["name"]: mount["mountPath"] for mount in pod(group)["volumeMounts"]}
        assert mounts == {"shared": "/shared", "shm": "/dev/shm"}
        shared, shm = group["template"]["spec"]["volumes"]
        assert shared["persistentVolumeClaim"] == {"claimName": "shared"} and shm["emptyDir"] == {
            "medium": "Memory"
        }


def test_the_command_starts_or_resumes_the_run_on_that_cluster() -> None:
    words = shlex.split(job("--nodes", "2")["spec"]["entrypoint"])
    assert words[:7] == ["liverl-tui", "up", "--no-ui", "--yes", "--resume-or-start", "--name", "night"]
    assert words[7:9] == ["--run-root", "/shared/runs"]
    assert words[-4:] == ["--set", "infrastructure.nnodes=2", "--set", "ray.address=127.0.0.1:6379"]


def test_one_node_and_no_gpu() -> None:
    found = job("--nodes", "1", "--cpus", "40")
    (head,) = groups(found)
    assert "workerGroupSpecs" not in found["spec"]["rayClusterSpec"] and "namespace" not in found["metadata"]
    assert head["rayStartParams"] == {"dashboard-host": "0.0.0.0", "num-cpus": "40", "num-gpus": "2"}
    assert pod(head)["resources"] == {"requests": {"cpu": 40}}, (
        "Ray counts GPUs that verl.device cpu does not use"
    )


# --- KubeRay's definition ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "more", "sets", "profile"),
    [
        ("1", (), VERL, "cpu-verl"),
        ("2", ("--memory", "100Gi", "--namespace", "rl"), GPU_SETS, "h200-smoke"),
    ],
)
def test_what_is_printed_fits(nodes: str, more: tuple[str, ...], sets: tuple[str, ...], profile: str) -> None:
    found = job("--nodes", nodes, *more, sets=sets, profile=profile)
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayJob")
    assert list(faults(found["spec"], SPEC)) == []


def spoiled(**changes: Any) -> dict[str, Any]:
    found = copy.deepcopy(job("--nodes", "2"))
    head = found["spec"]["rayClusterSpec"]["headGroupSpec"]
    for name, value in changes.items():
        place, _, key = name.partition("__")
        where = {"spec": found["spec"], "params": head["rayStartParams"], "pod": pod(head), "head": head}[
            place
        ]
        if value is None:
            del where[key]
        else:
            where[key] = value
    spec: dict[str, Any] = found["spec"]
    return spec


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"spec__backOffLimit": 0}, "spec.backOffLimit: unknown, and dropped in silence"),
        ({"params__num-gpus": 2}, "spec.rayClusterSpec.headGroupSpec.rayStartParams.num-gpus: 2 is not string"),
        ({"spec__backoffLimit": "0"}, "spec.backoffLimit: '0' is not integer"),
        ({"spec__shutdownAfterJobFinishes": 1}, "spec.shutdownAfterJobFinishes: 1 is not boolean"),
        ({"pod__name": None}, "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0]: name is required"),
        ({"head__template": None}, "spec.rayClusterSpec.headGroupSpec: template is required"),
        ({"pod__images": "x"}, "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].images: unknown, and "
            "dropped in silence"),
    ],
)  # fmt: skip
def test_a_wrong_one_does_not(changes: dict[str, Any], fault: str) -> None:
    assert list(faults(spoiled(**changes), SPEC)) == [fault]


@pytest.mark.parametrize(("name", "number"), [("valid", 0), ("wrong", 3)])
def test_manifests_of_others(name: str, number: int) -> None:
    spec = yaml.safe_load((DATA / f"{name}.yaml").read_text())["spec"]
    assert len(list(faults(spec, SPEC))) == number


# --- what cannot be one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "environments.verl.venv_path=null"], "environments.verl.venv_path is not set, but the pods' Ray"),
        (["--volume", "shared"], "--volume 'shared' is no claim with its path"),
        (["--volume", "Shared:/x"], "--volume 'Shared:/x' is no claim"),
        (["--volume", "shared:x"], "is no claim"),
        (["--volume", "shared:/"], "is no claim"),
        (["--volume", "shared:/x/../y"], "is no claim"),
        (["--image", "a b"], "--image 'a b' is not the name of an image"),
        (["--memory", "lots"], "--memory 'lots' is not a quantity of Kubernetes"),
        (["--namespace", "R L"], "--namespace 'R L' is not the name of a namespace"),
        (["--run-root", "/home/me/runs"], "the directory of the run (--run-root) is /home/me/runs/liverl/night, which "
            "the pods do not see; expected a path below /shared"),
        (["--set", "model.model_path=smoke:/data/smoke"], "model.model_path is /data/smoke"),
        (["--set", "experiment.trials_dir=$HOME"], "'experiment.trials_dir=$HOME' cannot be in the entrypoint"),
        (["--set", "experiment.trials_dir=a b"], "cannot be in the entrypoint"),
        (["--set", "credentials.wandb_api_key=abc"], "--set credentials.wandb_api_key: the script would hold"),
        (["--nodes", "0"], "0 is not in the range"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_named(words: list[str], said: str) -> None:
    with pytest.raises(Exception, match=r"\w") as error:
        printed(*words)
    message = getattr(error.value, "message", str(error.value))
    assert said in message and "abc" not in message
    assert getattr(error.value, "exit_code", None) == 2


def test_a_run_without_verl_needs_no_ray_cluster() -> None:
    with pytest.raises(Exception, match=r"trainer\.kind is embedded, but a RayJob is a Ray cluster for verl"):
        printed(sets=(), profile="embedded")


def test_a_configuration_file_is_one_that_pods_see(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("training: {total_steps: 3}\n")
    with pytest.raises(Exception, match=rf"--config is {file}, which the pods do not see"):
        printed("--config", str(file))
    words = shlex.split(
        yaml.safe_load(
            printed("--config", str(file), "--volume", f"shared:{tmp_path}", "--run-root", str(tmp_path),
                    "--set", f"model.model_path=smoke:{tmp_path}/smoke")
        )["spec"]["entrypoint"]
    )  # fmt: skip
    assert words[words.index("--config") + 1] == str(file)


@pytest.mark.parametrize(
    ("run", "name"),
    [("night", "liverl-night"), ("20261129-094219", "liverl-20261129-094219"), ("A_b.C", "liverl-a-b-c"),
     ("x" * 60, ("liverl-" + "x" * 60)[:LONGEST_NAME]), ("a" * 39 + "_b", "liverl-" + "a" * 39)],
)  # fmt: skip
def test_the_name_is_one_of_kubernetes(run: str, name: str) -> None:
    assert job_name(run) == name and len(name) <= LONGEST_NAME


def test_a_volume_is_a_claim_and_a_path() -> None:
    assert read_volume("rl-data:/mnt/rl/") == Volume("rl-data", "/mnt/rl")
    with pytest.raises(NoJob):
        read_volume("rl-data:")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    assert printed("-o", str(file)) == f"written: {file}; to start it: kubectl create -f {file}\n"
    before = file.read_text()
    with pytest.raises(Exception, match=r"exists; name a new file"):
        printed("-o", str(file))
    assert file.read_text() == before
