"""The job script for Slurm: its numbers are the configuration's, its text is correct shell, and no secret is in it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from liverl.config import load_config
from liverl.plan.sbatch import SHORTEST_S, WARN_S, Job, NoJob, check_limits, job_script, limit_seconds
from liverl.util import file_systems
from liverl_tui.cli.launcher import launcher_command

VERL = ("--profile", "cpu-verl", "--set", "run.topology=in_process")


def script(*words: str) -> str:
    done = CliRunner().invoke(launcher_command, ["slurm", "--name", "night", *words], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def options(text: str) -> dict[str, str]:
    """Of the ``#SBATCH`` lines."""
    found = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH ")]
    return {name: value for name, _, value in (line.partition("=") for line in found)}


def words_of(text: str, command: str) -> list[str]:
    """The words of the line that runs ``command`` in the background."""
    (line,) = (one for one in text.splitlines() if f'"${{program[@]}}" {command} ' in one)
    return shlex.split(line.removesuffix(" &"))


def test_a_run_on_one_node_asks_for_no_gpu_that_it_does_not_use() -> None:
    text = script("--set", "training.total_steps=3", "--time", "1-0", "--partition", "low")
    found = options(text)
    assert found == {
        "job-name": "night", "nodes": "1", "ntasks-per-node": "1", "cpus-per-task": "4", "partition": "low",
        "time": "1-0", "requeue": "", "open-mode": "append", "signal": "B:USR1@120",
    }  # fmt: skip
    assert "srun" not in text
    up = words_of(text, "up")
    assert up[1:7] == ["up", "--no-ui", "--yes", "--resume-or-start", "--name", "night"]
    assert up[-2:] == ["--set", "training.total_steps=3"]


def test_the_other_nodes_join_with_the_same_numbers(tmp_path: Path) -> None:
    sets = ("--set", "infrastructure.ngpus_per_node=2", "--set", "ray.num_cpus=40")
    text = script("--nodes", "4", *VERL, *sets, "--run-root", str(tmp_path))
    assert (options(text)["nodes"], options(text)["cpus-per-task"]) == ("4", "40")
    join = words_of(text, "join")
    assert join[0] == "srun" and join[-3:] == ["join", "--next", str(tmp_path / "liverl" / "night")]
    assert {"--relative=1", "--nodes=3", "--ntasks=3", "--cpus-per-task=40", "--overlap"} <= set(join)
    # After a requeue another host may be the first.
    assert words_of(text, "up")[-4:] == [
        "--set",
        "infrastructure.nnodes=4",
        "--set",
        "infrastructure.node0_ip=",
    ]


@pytest.mark.parametrize(
    ("kind", "nodes", "warned"), [("ext4", 2, True), ("nfs4", 2, False), ("ext4", 1, False)]
)
def test_a_run_root_that_other_nodes_do_not_see_is_warned_of(
    kind: str, nodes: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would start, and its other nodes wait for a directory that only the first one has."""
    monkeypatch.setattr(file_systems, "kernel_text", lambda _path: f"22 1 0:20 / / rw - {kind} /dev/x rw\n")
    words = ["slurm", "--name", "night", "--nodes", str(nodes), *VERL, "--run-root", str(tmp_path)]
    done = CliRunner().invoke(launcher_command, words, standalone_mode=False)
    assert done.exception is None and f"#SBATCH --nodes={nodes}" in done.stdout
    where = (
        f"the run's directory {tmp_path}/liverl/night is on a file system of this host ({kind}, mounted at /)"
    )
    assert (where in done.stderr) is warned and ("--run-root DIR" in done.stderr) is warned


ODD = 'it\'s; $(touch x) `y` "z" #\\'


@pytest.mark.parametrize("nodes", [1, 2])
def test_each_value_is_quoted(nodes: int, tmp_path: Path) -> None:
    up = ("up", "--set", f"a.b={ODD}")
    text = job_script(Job("n", nodes, 8, 4, (f"/{ODD}/liverl-tui",), up, f"/runs/{ODD}", f"/{ODD}"))
    file = tmp_path / "job"
    file.write_text(text)
    checked = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert words_of(text, "up")[-1] == f"a.b={ODD}"
    assert f"cd -- {shlex.quote(f'/{ODD}')} || exit 1" in text
    assert options(text)["gpus-per-node"] == "8"
    if nodes == 2:
        join = words_of(text, "join")
        assert join[-1] == f"/runs/{ODD}" and "--gpus-per-node=8" in join


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "2"], "infrastructure.nnodes is 2, but with trainer.kind embedded"),
        (["--nodes", "2", *VERL, "--set", "ray.address=10.0.0.1:6379"], "ray.address 10.0.0.1:6379 names a Ray"),
        (["--nodes", "2", *VERL, "--set", "infrastructure.node0_ip=10.0.0.1"], "infrastructure.node0_ip is 10.0.0.1"),
        (["--time", "soon"], "--time 'soon' is no time limit"),
        (["--time", "5"], "--time 5 is 300 s; expected at least 10 minutes"),
        (["--partition", "a b"], "--partition 'a b' is no name of a partition"),
        (["--set", "credentials.wandb_api_key=abc"], "--set credentials.wandb_api_key: the script would hold"),
        (["--nodes", "0"], "0 is not in the range"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_named(words: list[str], said: str) -> None:
    with pytest.raises(Exception, match=r"\w") as error:
        script(*words)
    message = getattr(error.value, "message", str(error.value))
    assert said in message and "abc" not in message
    assert getattr(error.value, "exit_code", None) == 2


def test_a_file_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "job.sbatch"
    assert script("-o", str(file)) == f"written: {file}; to submit it: sbatch {file}\n"
    before = file.read_text()
    assert before.startswith("#!/usr/bin/env bash\n")
    with pytest.raises(Exception, match=r"exists; name a new file"):
        script("-o", str(file))
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("24:00:00", 86400), ("2-12", 216000), ("1-0:30", 88200), ("1-0:0:5", 86405),
     ("", None), ("1:2:3:4", None), ("-5", None), ("1h", None)],
)  # fmt: skip
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str, seconds: int | None) -> None:
    assert limit_seconds(text) == seconds


def test_the_shortest_time_limit() -> None:
    check_limits(f"0:{SHORTEST_S}", "")
    with pytest.raises(NoJob):
        check_limits(f"0:{SHORTEST_S - 1}", "")


def test_the_guide_has_the_numbers_of_the_code() -> None:
    """Slurm may send the signal 60 s early: by then the last save must be over."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "slurm.md").read_text("utf-8")
    margin = load_config(env={}).config.batch.margin
    assert margin == WARN_S + 60
    assert f"`batch.margin` ({margin:g} s by default)" in page
    assert f"{WARN_S} s before the limit, or up to 60 s earlier" in page
    assert set(re.findall(r"USR1@(\d+)", page)) == {str(WARN_S), "600"}, "600: in the script that only saves"


def test_the_script_of_the_guide_ends_its_run_as_the_launchers_does() -> None:
    """docs/guides/slurm.md shows a whole script: beside its own command, each line of it is the launcher's."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "slurm.md").read_text("utf-8")
    shown = page.partition("```bash\n")[2].partition("```")[0]
    ours = script("--time", "24:00:00").splitlines()
    of_users = (
        "#SBATCH --job-name=",
        "#SBATCH --account=",
        "#SBATCH --gpus-per-node=",
        "#SBATCH --cpus-per-task=",
    )
    own = [line for line in shown.splitlines() if line not in ours and not line.startswith(of_users)]
    assert own == ["liverl-tui up --no-ui --yes --config my.yaml --name night --resume-or-start &"]
    body = [
        line for line in ours[ours.index("run='' stop='' limit=''") :] if not line.startswith("# Slurm also")
    ]
    assert [line for line in body if "program[@]" not in line and line not in shown.splitlines()] == []
    assert subprocess.run(["bash", "-n"], input=shown, text=True, check=False).returncode == 0
