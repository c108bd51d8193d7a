"""The checks of LiveRL's dryrun.sh, by its numbers: our verdict on a repository as its users lay it out, and on
the same one with one thing broken. Number 1, a validator that is part of the tree, is not run: it would execute it.

Repositories, environments, sockets, ports and processes are real; SIMULATED are the GPUs (NVML), kubectl and docker,
and what the file system says of its room. ``pytest -s`` prints the table.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kit.checked_runs import CLUSTER, GIB, NODES, TwoGpus, kubectl, tree
from kit.liverl_tree import MODULES, git, pinned_trees
from kit.ports import free_port
from kit.venvs import make_venv, site
from kit.waiting import wait_until

from liverl.observe.gpu import sampler
from liverl.preflight import repository
from liverl.procs import procfs
from liverl_tui.cli import main as cli

DOCKER = "harbor_patch.environments.docker.docker:DockerEnvironment"
# Python's SDK of Docker, as far as it is asked.
SDK = """
class Client:
    def version(self): return {"Version": "27.0"}
def from_env(timeout): return Client()
"""


class Repo(NamedTuple):
    """A repository that could be started. ``sets``: of the command line; ``gpus``: the simulated driver."""

    folder: Path
    root: Path
    sets: list[str]
    gpus: TwoGpus
    env: pytest.MonkeyPatch
    holds: list[Any]

    @property
    def train(self) -> Path:
        """The tree with the upstream scripts."""
        return self.root / "repos" / "harbor-verl-train"

    def docker(self, answer: str = "echo 27.0") -> None:
        """Have the sandboxes be containers."""
        self.sets.append(f"harbor_agent.environment_import_path={DOCKER}")
        program = self.folder / "bin" / "docker"
        program.write_text(f"#!/bin/sh\n{answer}\n")
        program.chmod(0o755)

    def listens(self, port: int = 0) -> int:
        """Hold a port as long as the test goes on."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        self.holds.append(sock)
        return int(sock.getsockname()[1])


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    root, gpus = tmp_path / "rl", TwoGpus(8)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    kubectl(tmp_path, *CLUSTER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC", "BASH_ENV", "CUDA_VISIBLE_DEVICES", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (gpus, ""))
    room = SimpleNamespace(f_bavail=500, f_frsize=1 << 30)
    monkeypatch.setattr(repository.os, "statvfs", lambda _: room)
    real, temp = repository.residue, tmp_path / "tmp"
    temp.mkdir()
    monkeypatch.setattr(repository, "residue", lambda plan: real(plan, temp))
    scan = procfs.scan  # other trainings of this host are not this test's
    mine = {os.getpid()}
    monkeypatch.setattr(
        repository.procfs, "scan", lambda: {p: x for p, x in scan().items() if p in mine or x.ppid in mine}
    )
    pins = pinned_trees(root)
    train = root / "repos" / "harbor-verl-train"
    write(train / "scripts" / "sync_1node_cc.sh", "export gen_tp=${GEN_TP:-4}\necho train\n")
    write(train / "configs" / "train" / "harbor_verl_sync.yaml", "tool-call-parser: qwen3_coder\n")
    write(train / "configs" / "agent_loop_config_cc.yaml", "tool_parser: qwen3_coder\n")
    for name in ("start.sh", "train_1node_cc.sh"):
        write(root / "scripts" / name, "echo start\n")
    write(root / "dashboard" / "server.py", "")
    (root / "dashboard" / "dist").mkdir()
    venv = make_venv(train / ".venv")
    for module in MODULES:
        write(root / "repos" / "code" / module / "__init__.py", "raise SystemExit('imported')\n")
    write(site(venv) / "docker" / "__init__.py", SDK)
    (site(venv) / "mine.pth").write_text(f"{root / 'repos' / 'code'}\n")
    heads = {"architectures": ["Toy"], "num_attention_heads": 32, "num_key_value_heads": 4}
    write(tmp_path / "models" / "Toy" / "config.json", json.dumps(heads))
    for name in ("train.parquet", "val.parquet", "logger.py", "kubeconfig"):
        write(tmp_path / "share" / name, "x")
    ports = {name: free_port() for name in ("ray_port", "ray_dashboard_port", "litellm_port")}
    share = tmp_path / "share"
    inputs = {
        "model": {"model_path": str(tmp_path / "models" / "Toy")},
        "data": {"train_index": str(share / "train.parquet"), "val_index": str(share / "val.parquet")},
        "infrastructure": {"ngpus_per_node": 8, **ports},
        "k8s": {"kubeconfig": str(share / "kubeconfig")},
        "vllm": {"gen_tp": 4},
        "experiment": {"trajectory_logger_src": str(share / "logger.py")},
        "credentials": {"wandb_mode": "offline"},
    }
    text = f"{pins}runtime_info: {{input: {json.dumps(inputs)}}}\n"
    write(root / "config.yaml", text)
    sets = ["trainer.kind=command", "trainer.command=[bash, scripts/start.sh]", f"trainer.cwd={root}"]
    made = Repo(tmp_path, root, [*sets, f"run.run_root={tmp_path / 'runs'}"], gpus, monkeypatch, [])
    yield made
    for held in made.holds:
        if isinstance(held, subprocess.Popen):
            held.kill()
            held.communicate()
        else:
            held.close()


def checked(
    repo: Repo, capsys: pytest.CaptureFixture[str], config: Path | None = None
) -> list[dict[str, Any]]:
    """What ``check`` finds; the tree is as before."""
    before = tree(repo.root)
    words = [word for text in repo.sets for word in ("--set", text)]
    cli.run(["check", "--json", "--config", str(config or repo.root / "config.yaml"), *words])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    assert tree(repo.root) == before, "a check changes nothing"
    assert list((repo.folder / "home").iterdir()) == [], "nothing was built"
    found: list[dict[str, Any]] = json.loads(captured.out)["checks"]
    return found


def commits(repo: Repo) -> None:
    git(repo.root / "repos" / "verl", "commit", "-q", "--allow-empty", "-m", "two")


def other_module(repo: Repo) -> None:
    write(repo.folder / "elsewhere" / "verl" / "__init__.py", "")
    (site(repo.train / ".venv") / "a.pth").write_text(f"{repo.folder / 'elsewhere'}\n")


def port_held(repo: Repo) -> None:
    repo.sets.append(f"infrastructure.litellm_port={repo.listens()}")


def sdk_gone(repo: Repo) -> None:
    repo.docker()
    (site(repo.train / ".venv") / "docker" / "__init__.py").write_text("raise ImportError('no SDK')")


def docker_address(repo: Repo, address: str) -> None:
    repo.docker()
    repo.sets.append(f"harbor_agent.docker_host={address}")


def closed_logs(repo: Repo) -> None:
    """A file in the place of the folder: root may write anywhere else."""
    write(repo.train / "logs", "")


def room(repo: Repo) -> None:
    small = SimpleNamespace(f_bavail=49, f_frsize=1 << 30)
    repo.env.setattr(repository.os, "statvfs", lambda _: small)


def trains(repo: Repo) -> None:
    file = write(repo.folder / "wait.py", "import sys; print('up', flush=True); sys.stdin.read()\n")
    argv = [sys.executable, str(file), "main_ppo"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repo.root)
    repo.holds.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    wait_until(lambda: procfs.arguments(process.pid)[:1] == (argv[0],), what="its start")


def wandb(repo: Repo) -> None:
    repo.sets.append("credentials.wandb_mode=online")


class Row(NamedTuple):
    """``number``: dryrun.sh's; ``id``: of our check; ``words``, ``status``: of it, where ``breaks`` has been called;
    ``good``: its status where nothing is broken."""

    number: str
    what: str
    id: str
    breaks: Callable[[Repo], Any]
    words: str
    status: str = "fail"
    good: str = "ok"
    first: Callable[[Repo], Any] = lambda _: None  # what the good one needs, too


ROWS = (
    Row("2", "config.yaml parses", "liverl-config", lambda r: write(r.root / "config.yaml", "a: ["), "config.yaml"),
    Row("3", "repositories", "pins", lambda r: (r.root / "repos/harbor").rename(r.folder / "x"), "does not exist"),
    Row("4", "pins", "pins", commits, "other code would run"),
    Row("4", "pins, no repository", "pins",
        lambda r: (r.root / "repos/harbor/.git").rename(r.folder / "x"), "is no git repository"),
    Row("5", "upstream files", "upstream-files",
        lambda r: (r.train / "configs/train/harbor_verl_sync.yaml").unlink(), "has no harbor_verl_sync.yaml"),
    Row("6", "bash -n, upstream", "upstream-files",
        lambda r: write(r.train / "scripts/sync_1node_cc.sh", "if true; then\n"), "syntax error"),
    Row("6", "bash -n, wrapper", "upstream-files",
        lambda r: write(r.root / "scripts/train_1node_cc.sh", "for x in; done )\n"), "syntax error"),
    Row("7", "python of the venv", "script-modules",
        lambda r: (r.train / ".venv/bin/python").unlink(), "does not exist", "skipped"),  # start.sh builds it
    Row("8", "modules", "script-modules", other_module, "other code"),
    Row("9", "model", "script-paths", lambda r: r.sets.append("model.model_path=/no/such"), "/no/such does not exist"),
    Row("9", "data", "script-paths", lambda r: (r.folder / "share/val.parquet").unlink(), "val.parquet does not exist"),
    Row("9", "logger", "script-paths", lambda r: (r.folder / "share/logger.py").unlink(), "logger.py does not exist"),
    Row("10", "Docker's sandboxes", "script-docker", lambda r: r.docker("echo no >&2; exit 1"),
        "its daemon does not answer: no", first=lambda r: r.docker()),
    Row("10a", "a remote docker", "script-docker",
        lambda r: docker_address(r, f"tcp://127.0.0.1:{free_port()}"), "cannot be reached",
        first=lambda r: docker_address(r, f"tcp://127.0.0.1:{r.listens()}")),
    Row("10b", "a unix socket", "script-docker",
        lambda r: docker_address(r, "unix:///no/such.sock"), "/no/such.sock is no socket", first=lambda r: r.docker()),
    Row("10c", "the SDK", "script-docker", sdk_gone, "no SDK", first=lambda r: r.docker()),
    Row("10d", "the cluster", "cluster",
        lambda r: kubectl(r.folder, f"echo '{NODES % False}'", CLUSTER[1]), "none of its 1 nodes is ready"),
    Row("11", "ports", "script-ports", port_held, "held by", "warn"),
    Row("12", "logs, checkpoints", "script-folders", closed_logs, "is not writable"),
    Row("13", "wandb", "wandb-key", wandb, "there is no key", good=""),
    Row("14", "number of GPUs", "gpus", lambda r: [r.gpus.held.pop(n) for n in (6, 7)], "6 GPUs visible"),
    Row("15", "GPUs that are held", "gpus",
        lambda r: r.gpus.held[0].append((os.getpid(), 70 * GIB)), "only 7 of 8 GPUs are free", "warn"),
    Row("16", "free space", "checkpoint-room", room, "49 GiB free", "warn"),
    Row("17", "residue in /tmp", "residue",
        lambda r: write(r.folder / "tmp/litellm_cc_8002.pid", "1"), "earlier launches left", "warn"),
    Row("17", "residue of trials", "residue",
        lambda r: write(r.train / "harbor_trials/p/e/t/result.json", "{}"), "harbor_trials", "warn"),
    Row("18", "key-value heads", "model-heads",
        lambda r: write(r.train / "scripts/sync_1node_cc.sh", "gen_tp=3\n"), "not divisible by 3"),
    Row("18", "key-value heads, mirror", "model-heads",
        lambda r: (write(r.train / "scripts/sync_1node_cc.sh", "echo\n"), r.sets.append("vllm.gen_tp=8")),
        "4 key-value heads are fewer than 8"),
    Row("19", "the dashboard", "dashboard",
        lambda r: (r.root / "dashboard/dist").rmdir(), "has no dist", "warn"),
    Row("3b", "a training goes on", "job-running", trains, "is training"),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number} {row.what}")
def test_a_good_repository_and_a_broken_one(row: Row, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    own = repo.folder / "my.yaml"  # of a user whose file is not that of the repository
    own.write_bytes((repo.root / "config.yaml").read_bytes())
    first = list(repo.sets)
    row.first(repo)
    good = checked(repo, capsys, own)
    assert [c for c in good if c["status"] == "fail"] == []
    states = {check["status"] for check in good if check["id"] == row.id}
    assert (row.good in states and not states & {"fail", "warn"}) if row.good else not states, good
    repo.sets[:] = first
    row.breaks(repo)
    broken = checked(repo, capsys, own)
    found = [check for check in broken if check["id"] == row.id and row.words in check["text"]]
    assert [check["status"] for check in found] == [row.status], [c for c in broken if c["id"] == row.id]
    others = [c["id"] for c in broken if c["status"] == "fail" and c is not found[0]]
    assert others in ([], ["upstream-files"]), others
    told = found[0]["text"].replace(str(repo.folder), "...")
    print(
        f"{row.number:4} {row.what:24} good: {row.good or '(not wanted)':13} broken: {row.status:8} {told[:90]}"
    )


def test_elsewhere_there_is_no_repository(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    """A script of anybody's gets none of its checks."""
    write(repo.folder / "mine" / "go.sh", "echo go\n")
    sets = ["trainer.kind=command", "trainer.command=[bash, go.sh]", f"trainer.cwd={repo.folder / 'mine'}"]
    repo.sets[:] = [*sets, f"run.run_root={repo.folder / 'runs'}"]
    own = write(repo.folder / "my.yaml", "run: {topology: verl, engine: vllm}\n")
    ids = {check["id"] for check in checked(repo, capsys, own)}
    assert not ids & {
        "liverl-config",
        "pins",
        "upstream-files",
        "script-folders",
        "script-heads",
        "dashboard",
    }
