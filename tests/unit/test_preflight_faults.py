"""What is found before the start, under every topology: each fault is a real file, port or directory. SIMULATED are
the GPUs (NVML), the cluster (kubectl) and the hub (a server on this host, at the address that huggingface_hub would
ask)."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from kit import checked_runs
from kit.asked_once import templates_asked_once
from kit.checked_runs import CLUSTER, GIB, NODES, TOPOLOGIES, TwoGpus, kubectl, safetensors, tree

from liverl.observe.gpu import sampler
from liverl.preflight import cluster
from liverl.procs import procfs
from liverl_tui.cli import main as cli

SERVING = ("managed", "verl", "in_process")
OF_VERL = ("verl", "in_process")
WITH_PROXY = ("embedded", "managed", "verl")
HUB = "toys/Toy-1B"


class Place(NamedTuple):
    """A run that could start, to be broken. ``sets``: of the command line; ``gpus``: the simulated driver."""

    folder: Path
    topology: str
    sets: list[str]
    gpus: TwoGpus
    env: pytest.MonkeyPatch

    @property
    def model(self) -> Path:
        """The model's folder."""
        return self.folder / "models" / "Toy-1B"

    def set(self, text: str) -> None:
        """``--set`` with ``{folder}`` filled in."""
        self.sets.append(text.replace("{folder}", str(self.folder)))

    def emptied(self) -> None:
        """Remove the weights."""
        for path in self.model.glob("model*"):
            path.unlink()

    def config(self, **values: Any) -> None:
        """Change the model's config.json; None removes a key."""
        file = self.model / "config.json"
        merged = json.loads(file.read_text()) | values
        file.write_text(json.dumps({key: value for key, value in merged.items() if value is not None}))


def plug_in(p: Place) -> None:
    """A plug-in for credentials that does not answer, as one that waits for a browser."""
    kubectl(p.folder, "sleep 4711 & wait", CLUSTER[1])
    p.env.setattr(cluster, "SECONDS", 0.5)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Place]:
    """Makes a place. Nothing of it is outside of the test's folder."""
    templates_asked_once(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (
        "LIVERL_CACHE_DIR",
        "XDG_CACHE_HOME",
        "CUDA_VISIBLE_DEVICES",
        "HF_HOME",
        "HF_TOKEN",
        "SLURM_JOB_ID",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC", "BASH_ENV"):
        monkeypatch.delenv(name, raising=False)
    gpus = TwoGpus()
    monkeypatch.setattr(sampler, "open_nvml", lambda given=None: (gpus, ""))

    def make(topology: str) -> Place:
        (tmp_path / "home").mkdir()
        checked_runs.configured(tmp_path, topology)
        kubectl(tmp_path, *CLUSTER)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        return Place(tmp_path, topology, [], gpus, monkeypatch)

    return make


class Hub(ThreadingHTTPServer):
    """SIMULATED: the hub. ``says``: the status, the header X-Error-Code and the text of each answer."""

    says: tuple[int, str, bytes] = (404, "RepoNotFound", b"")
    silent = False
    moved = ""  # where the first request is sent on to
    asked: list[tuple[str, str]]
    daemon_threads = True


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization", "")))
        if self.server.silent:
            self.close_connection = True
            return
        if self.server.moved and len(self.server.asked) == 1:
            self.send_response(307)
            self.send_header("Location", self.server.moved)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status, code, text = self.server.says
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub(("127.0.0.1", 0), _Answer)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    yield server
    server.shutdown()
    server.server_close()


def started() -> set[int]:
    """Processes that this one has started and that live."""
    own = os.getpid()
    return {pid for pid, proc in procfs.scan().items() if proc.ppid == own and not proc.zombie}


def checked(place: Place, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of ``check --json`` and what it found. All is as it was afterwards: no file has changed, no process
    goes on, no variable is set, and nothing was built."""
    before, processes, variables = tree(place.folder), started(), dict(os.environ)
    words = [word for text in place.sets for word in ("--set", text)]
    code = cli.run(["check", "--json", "--config", str(place.folder / "my.yaml"), *words])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    assert tree(place.folder) == before, "a check changes nothing"
    assert started() <= processes and dict(os.environ) == variables, "nothing of it goes on"
    assert list((place.folder / "home").iterdir()) == [], "nothing was built, and nothing is cached"
    return code, json.loads(captured.out)["checks"]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_run_that_could_start(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], topology: str
) -> None:
    code, checks = checked(place(topology), capsys)
    assert code == 0 and not [check for check in checks if check["status"] == "fail"]
    warned = {check["id"] for check in checks if check["status"] == "warn"}
    of_machine = {"unguarded-ports", "open-files", "process-limit", "object-store"}
    of_machine |= {"job-running", "residue", "checkpoint-room", "environment-disks"}
    assert warned <= of_machine, "they tell of this machine"
    assert all(check["id"] and check["name"] and check["text"] for check in checks)
    assert {
        c["name"]: c["status"] for c in checks if c["id"].startswith("model") and c["name"] != "context"
    } == (
        {"model heads": "ok"}
        if topology == "script"
        else {"model": "ok"} | ({} if topology == "embedded" else {"model weights": "ok", "tokenizer": "ok"})
    )


class Fault(NamedTuple):
    """``breaks``: what is wrong; ``where``: under which topologies; ``id``, ``status``, ``words``, ``fix``: of the one
    check that says so; ``patch``: with {folder}."""

    name: str
    where: Sequence[str]
    breaks: Callable[[Place], Any]
    id: str
    words: str
    fix: str = ""
    patch: Mapping[str, str] = MappingProxyType({})
    status: str = "fail"


def gone(path: Path) -> None:
    path.unlink()


def script(name: str, key: str) -> Callable[[Place], None]:
    return lambda p: p.set(f"{key}={name}")


def lone_shard(p: Place) -> None:
    (p.model / "model.safetensors.index.json").unlink()
    gone(p.model / "model-00001-of-00002.safetensors")


def hold(p: Place, key: str) -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    p.env.setattr(socket, "kept_by_the_test", taken, raising=False)
    p.set(f"{key}={taken.getsockname()[1]}")


def cached(p: Place, **config: Any) -> None:
    """The model in a cache of the hub, whose name is set."""
    base = p.folder / "hub" / f"models--{HUB.replace('/', '--')}"
    checked_runs.model(base / "snapshots" / "abc", **config)
    (base / "refs").mkdir()
    (base / "refs" / "main").write_text("abc")
    p.env.setenv("HF_HUB_CACHE", str(p.folder / "hub"))
    p.set(f"model.model_path={HUB}")


SIZES = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "vocab_size": 512}
# Without it the default of 4 is planned as 1
FLASH = "environments.verl.requirements=[verl, 'flash-attn>=2.8']"
FAULTS = (
    # --- the model's folder
    Fault("no folder", SERVING, lambda p: p.set("model.model_path=/no/such"), "model",
          "cannot read /no/such/config.json: No such file or directory", "set model.model_path to the folder"),
    Fault("a typing error", SERVING, lambda p: p.set("model.model_path={folder}/models/toy-1b"), "model",
          "/models/toy-1b/config.json: No such file", "did you mean {folder}/models/Toy-1B?",
          {"model.model_path": "{folder}/models/Toy-1B"}),
    Fault("a file", SERVING, lambda p: p.set("model.model_path={folder}/start.sh"), "model", "Not a directory"),
    Fault("a folder without config.json", SERVING, lambda p: gone(p.model / "config.json"), "model",
          "/config.json: No such file", "the folder with config.json"),
    Fault("config.json is a folder", SERVING,
          lambda p: (gone(p.model / "config.json"), (p.model / "config.json").mkdir()), "model", "config.json"),
    Fault("config.json is half", SERVING, lambda p: (p.model / "config.json").write_text('{"a": '), "model",
          "cannot parse", "copy or download the model again"),
    Fault("config.json is a list", SERVING, lambda p: (p.model / "config.json").write_text("[]"), "model",
          "not a mapping"),
    Fault("embedded: no folder", ("embedded",), lambda p: p.set("model.model_path={folder}/models/toy"), "model",
          "there is no directory {folder}/models/toy"),
    Fault("embedded: a model of others", ("embedded",), lambda p: p.set("model.model_path={folder}/models/Toy-1B"),
          "model", "not a model of the embedded engine"),
    Fault("a typing error, and nothing like the rest", SERVING,
          lambda p: p.set("model.model_path={folder}/models/toy-1b/step-9"), "model", "No such file",
          "the path exists up to {folder}/models, which has no 'toy-1b'; set model.model_path"),
    # --- experts
    Fault("experts that cannot be split", ("managed", "verl"),
          lambda p: (p.config(**SIZES, num_experts=4, moe_intermediate_size=33), p.set("vllm.gen_tp=2")), "experts",
          "vllm.gen_tp is 2, but experts that are 33 wide cannot be split over 2 GPUs", "set vllm.gen_tp to 1",
          {"vllm.gen_tp": "1"}),
    Fault("experts of a model for text and pictures", ("managed",),
          lambda p: (p.config(text_config={**SIZES, "num_experts": 4, "moe_intermediate_size": 33,
                                           "num_attention_heads": 8, "num_key_value_heads": 4}),
                     p.set("vllm.gen_tp=2")), "experts", "33 wide cannot be split", patch={"vllm.gen_tp": "1"}),
    Fault("experts that are kept whole", ("verl",),
          lambda p: (p.config(**SIZES, num_experts=4, moe_intermediate_size=33), p.set("vllm.gen_tp=2"),
                     p.set("trainer.overrides={actor_rollout_ref.rollout.expert_parallel_size: 2}")), "experts",
          "expert_parallel_size keeps each expert whole", status="skipped"),
    Fault("routing replay of a dense model", ("script",),
          lambda p: (p.config(**SIZES), p.set("trainer.env={ENABLE_R3: 'True'}")), "experts",
          "ENABLE_R3 is on, but {folder}/models/Toy-1B has no experts", "set ENABLE_R3 to False"),
    Fault("routing replay of a model that does not tell", ("script",),
          lambda p: p.set("trainer.env={ENABLE_R3: 'True'}"), "experts", "is not known", status="skipped"),
    # --- heads and GPUs of a replica
    Fault("the nearest size below", OF_VERL,
          lambda p: (p.config(num_attention_heads=6, num_key_value_heads=6), p.set("vllm.gen_tp=4"),
                     p.set("infrastructure.ngpus_per_node=4"), p.gpus.held.update({2: [], 3: []})), "model-heads",
          "vllm.gen_tp is 4, but 6 attention heads", "set vllm.gen_tp to 1 or 2", {"vllm.gen_tp": "2"}),
    Fault("the nearest size below that has GPUs", ("managed",),
          lambda p: (p.config(num_attention_heads=6, num_key_value_heads=6), p.set("vllm.gen_tp=4"),
                     p.set("infrastructure.ngpus_per_node=4"), p.gpus.held.update({2: [], 3: []})), "model-heads",
          "vllm.gen_tp is 4, but 6 attention heads", "set vllm.gen_tp to 1 or 2 or 3", {"vllm.gen_tp": "3"}),
    Fault("key-value heads that are shared", SERVING,
          lambda p: p.config(num_key_value_heads=None, multi_query=True), "model-heads",
          "names no number of key-value heads", status="skipped"),
    Fault("attention heads", SERVING, lambda p: p.config(num_attention_heads=7, num_key_value_heads=7), "model-heads",
          "vllm.gen_tp is 2, but 7 attention heads are not divisible by 2", "set vllm.gen_tp to 1",
          {"vllm.gen_tp": "1"}),
    Fault("key-value heads", SERVING, lambda p: p.config(num_attention_heads=12, num_key_value_heads=3), "model-heads",
          "3 key-value heads are not divisible by 2", "set vllm.gen_tp to 1", {"vllm.gen_tp": "1"}),
    Fault("heads of the text part", SERVING,
          lambda p: p.config(num_attention_heads=8, llm_config={"num_attention_heads": 7}), "model-heads",
          "7 attention heads are not divisible by 2"),
    Fault("an empty text part", SERVING, lambda p: p.config(text_config={}, num_attention_heads=7), "model-heads",
          "7 attention heads are not divisible by 2"),
    Fault("no heads", SERVING, lambda p: p.config(num_attention_heads=None, num_key_value_heads=None), "model-heads",
          "is not known", status="skipped"),
    Fault("heads that are text", SERVING, lambda p: p.config(num_attention_heads="8"), "model-heads", "is not known",
          status="skipped"),
    Fault("few key-value heads", OF_VERL, lambda p: p.config(num_key_value_heads=1), "model-heads",
          "1 key-value heads are fewer than 2", patch={"vllm.gen_tp": "1"}),
    Fault("few key-value heads of vLLM's", ("managed",), lambda p: p.config(num_key_value_heads=1), "model-heads",
          "vLLM replicates them", patch={"vllm.gen_tp": "1"}, status="warn"),
    Fault("verl's own spelling", OF_VERL,
          lambda p: p.set("trainer.overrides={actor_rollout_ref.model.path: /no/such}"), "model",
          "cannot read /no/such/config.json", "trainer.overrides.actor_rollout_ref.model.path"),
    Fault("a sequence parallel that divides no heads", OF_VERL,
          lambda p: (p.config(num_attention_heads=10, num_key_value_heads=2), p.set("training.sp_size=4"), p.set(FLASH),
                     p.set("infrastructure.ngpus_per_node=4"), p.gpus.held.update({2: [], 3: []})), "model-sequence",
          "training.sp_size is 4, but 10 attention heads are not divisible by 4", "set training.sp_size to 1 or 2",
          {"training.sp_size": "2"}),
    Fault("a sequence parallel between the key-value heads", OF_VERL,
          lambda p: (p.config(num_attention_heads=12, num_key_value_heads=6), p.set("training.sp_size=4"), p.set(FLASH),
                     p.set("infrastructure.ngpus_per_node=4"), p.gpus.held.update({2: [], 3: []})), "model-sequence",
          "6 key-value heads are neither divisible by 4 nor a divisor of it", "set training.sp_size to 1 or 2"),
    # --- weights
    Fault("a shard is missing", SERVING, lambda p: gone(p.model / "model-00002-of-00002.safetensors"), "model-weights",
          "has 1 of 2 files of weights; missing: model-00002-of-00002.safetensors", "download or copy the model again"),
    Fault("a shard is missing, without an index", SERVING, lone_shard, "model-weights", "has 1 of 2 files of weights"),
    Fault("a shard is cut off", SERVING,
          lambda p: safetensors(p.model / "model-00001-of-00002.safetensors", cut=10), "model-weights",
          "is cut off: it has"),
    Fault("a shard is empty", SERVING, lambda p: (p.model / "model-00001-of-00002.safetensors").write_bytes(b""),
          "model-weights", "is empty"),
    Fault("a shard is no safetensors", SERVING,
          lambda p: (p.model / "model-00001-of-00002.safetensors").write_bytes(b"<html>404</html>"), "model-weights",
          "is no file of safetensors"),
    Fault("a pointer of Git LFS", SERVING,
          lambda p: (p.model / "model-00001-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1"),
          "model-weights", "is a pointer of Git LFS", "git lfs pull"),
    Fault("an index that is none", SERVING, lambda p: (p.model / "model.safetensors.index.json").write_text("{}"),
          "model-weights", "it has no weight_map"),
    Fault("a shard that leads nowhere", SERVING,
          lambda p: (gone(p.model / "model-00001-of-00002.safetensors"),
                     (p.model / "model-00001-of-00002.safetensors").symlink_to("../blobs/gone")),
          "model-weights", "No such file or directory"),
    Fault("files of a trainer, and no weights", SERVING,
          lambda p: (p.emptied(), (p.model / "training_args.bin").write_bytes(b"x")), "model-weights",
          "has no weights"),
    # --- ids of the hub
    Fault("neither path nor id", SERVING, lambda p: p.set("model.model_path=models/a/b"), "model",
          "models/a/b is neither a path nor the id of a model", "absolute path"),
    Fault("a folder here that looks like an id", SERVING,
          lambda p: (p.env.chdir(p.folder), p.set("model.model_path=models/Toy-1B")), "model", "is not known",
          "to use the folder {folder}/models/Toy-1B, write its whole path",
          {"model.model_path": "{folder}/models/Toy-1B"}, status="skipped"),
    Fault("offline", SERVING,
          lambda p: (p.set(f"model.model_path={HUB}"), p.env.setenv("HF_HUB_OFFLINE", "1")), "model",
          "HF_HUB_OFFLINE is set", "download it where there is internet"),
    Fault("cached, with other heads", SERVING, lambda p: cached(p, num_attention_heads=7, num_key_value_heads=7),
          "model-heads", "7 attention heads"),
    Fault("cached, and incomplete", SERVING,
          lambda p: (cached(p), gone(next((p.folder / "hub").rglob("*-00002.safetensors")))), "model-weights",
          "has 1 of 2 files of weights"),
    # --- GPUs
    Fault("a GPU too few", SERVING, lambda p: p.gpus.held.pop(1), "gpus", "1 GPU visible, but"),
    Fault("a GPU that is hidden", SERVING, lambda p: p.env.setenv("CUDA_VISIBLE_DEVICES", "1"), "gpus",
          "1 GPU visible, but"),
    Fault("a GPU is taken", SERVING, lambda p: p.gpus.held[0].append((os.getpid(), 70 * GIB)), "gpus",
          "only 1 of 2 GPUs are free", "choose other GPUs with CUDA_VISIBLE_DEVICES"),
    Fault("a GPU is used a little", OF_VERL, lambda p: p.gpus.held[0].append((os.getpid(), 2 * GIB)), "gpus",
          "share their memory with the run", status="warn"),
    Fault("the first of more GPUs is taken", OF_VERL,
          lambda p: (p.gpus.held.update({2: []}), p.gpus.held[0].append((os.getpid(), 70 * GIB))), "gpus",
          "only 1 of 2 GPUs are free"),
    Fault("one of the chosen GPUs is taken", OF_VERL,
          lambda p: (p.gpus.held.update({2: []}), p.env.setenv("CUDA_VISIBLE_DEVICES", "2,1,0"),
                     p.gpus.held[2].append((os.getpid(), 70 * GIB))), "gpus", "only 2 of 3 GPUs are free"),
    Fault("a script on a host with a GPU too few", ("script",), lambda p: p.gpus.held.pop(1), "gpus",
          "1 GPU visible, but infrastructure.ngpus_per_node is 2"),
    Fault("more replicas than GPUs", ("managed",),
          lambda p: (p.set("infrastructure.ngpus_per_node=8"), p.set("run.replicas=4")), "gpus",
          "2 GPUs visible, but run.replicas 4 x vllm.gen_tp 2 is 8", "run fewer replicas", {"run.replicas": "1"}),
    # --- ports and directories
    Fault("the proxy's port", WITH_PROXY, lambda p: hold(p, "infrastructure.litellm_port"), "ports", "held by",
          "infrastructure.litellm_port=0", {"infrastructure.litellm_port": "0"}),
    Fault("Ray's port", OF_VERL, lambda p: hold(p, "infrastructure.ray_port"), "ports", "held by",
          patch={"infrastructure.ray_port": "0"}),
    Fault("a run root that is a file", TOPOLOGIES, lambda p: p.set("run.run_root={folder}/start.sh/runs"),
          "run-directory", "start.sh is not writable"),
    Fault("too many replicas", ("embedded",), lambda p: p.set("run.replicas=1000"), "replicas", "run.replicas is 1000"),
    # --- environments
    Fault("no environment there", WITH_PROXY, lambda p: p.set("environments.proxy.venv_path=/no/venv"), "environments",
          "/no/venv/bin/python does not exist", "environments.proxy.venv_path"),
    Fault("an environment without LiteLLM", WITH_PROXY, lambda p: p.set(f"environments.proxy.venv_path={sys.prefix}"),
          "environments", "has no module litellm", "install litellm there"),
    Fault("no environment with vLLM there", ("managed",), lambda p: p.set("environments.vllm.venv_path=/no/venv"),
          "environments", "/no/venv/bin/python does not exist"),
    Fault("no environment with verl there", OF_VERL, lambda p: p.set("environments.verl.venv_path=/no/venv"),
          "environment-verl", "/no/venv/bin/python does not exist"),
    # --- data, agents and names of verl's
    Fault("no data", OF_VERL, lambda p: gone(p.folder / "data" / "train.parquet"), "data",
          "cannot read {folder}/data/train.parquet: No such file"),
    Fault("data with a typing error", OF_VERL, lambda p: p.set("data.train_index={folder}/data/trian.parquet"), "data",
          "No such file", "did you mean {folder}/data/train.parquet?",
          {"data.train_index": "{folder}/data/train.parquet"}),
    Fault("data that is no parquet", OF_VERL, lambda p: (p.folder / "data" / "val.parquet").write_text("a,b\n"), "data",
          "is not a parquet file"),
    Fault("tools that are not there", OF_VERL,
          lambda p: (p.set("agent.kind=tools"), p.set("agent.tools=/no/such.yaml")),
          "data", "cannot read /no/such.yaml"),
    Fault("a logger that verl lacks", OF_VERL, lambda p: p.set("trainer.overrides={trainer.logger: [consol, file]}"),
          "loggers", "unknown loggers for verl: consol"),
    Fault("a parser that verl lacks", ("in_process",), lambda p: p.set("model.tool_parser=granite"), "tool-parser",
          "verl has no tool parser for 'granite'"),
    Fault("the FAQ's number of CPUs", OF_VERL, lambda p: p.set("trainer.overrides={ray_init.num_cpus: 8}"), "faq-keys",
          "trainer.overrides.ray_init.num_cpus: verl refuses", "set ray.num_cpus"),
    Fault("the FAQ's number of CPUs where verl has it", OF_VERL,
          lambda p: p.set("trainer.overrides={+ray_kwargs.ray_init.num_cpus: 8}"), "faq-keys",
          "trainer.overrides.ray_kwargs.ray_init.num_cpus: verl refuses", "set ray.num_cpus"),
    Fault("the FAQ's timeline", OF_VERL, lambda p: p.set("trainer.overrides={ray_init.timeline_file: /t.json}"),
          "faq-keys", "verl 0.9 has no ray_init", "set ray.timeline"),
    Fault("wandb without a key", OF_VERL, lambda p: p.set("credentials.wandb_mode=online"), "wandb-key",
          "there is no key: not in WANDB_API_KEY, not in {folder}/home/.netrc", "credentials.wandb_mode to offline"),
    Fault("a script's wandb without a key", ("script",), lambda p: p.set("credentials.wandb_mode=online"), "wandb-key",
          "there is no key"),
    # --- launch scripts
    Fault("a script with a wrong syntax", ("script",), lambda p: (p.folder / "start.sh").write_text("if true; then\n"),
          "script-syntax", "syntax error", "correct {folder}/start.sh"),
    Fault("a program with a wrong syntax", ("script",),
          lambda p: ((p.folder / "go").write_text("#!/usr/bin/env bash\nfor x in; done )\n"),
                     (p.folder / "go").chmod(0o755), p.set("trainer.command=[./go]")),
          "script-syntax", "syntax error", "correct {folder}/go"),
    Fault("no script", ("script",), lambda p: gone(p.folder / "start.sh"), "launch-script",
          "trainer.command: {folder}/start.sh does not exist"),
    Fault("no folder for it", ("script",), lambda p: p.set("trainer.cwd=/no/such"), "launch-script",
          "trainer.cwd: /no/such does not exist"),
    Fault("no model for it", ("script",), lambda p: p.set("model.model_path={folder}/models/Toy-1b"), "script-paths",
          "{folder}/models/Toy-1b does not exist (MODEL_PATH of the launch script, set by --set)",
          "did you mean {folder}/models/Toy-1B?", {"model.model_path": "{folder}/models/Toy-1B"}),
    Fault("an empty model", ("script",), lambda p: (p.set("model.model_path={folder}/m"), (p.folder / "m").mkdir()),
          "script-paths", "{folder}/m is empty"),
    Fault("no data for it", ("script",), lambda p: gone(p.folder / "data" / "val.parquet"), "script-paths",
          "val.parquet does not exist (VAL_INDEX of the launch script", "correct data.val_index"),
    Fault("data that is a folder", ("script",), lambda p: p.set("data.train_index={folder}/data"), "script-paths",
          "{folder}/data is a directory"),
    Fault("an environment without Python", ("script",), lambda p: gone(p.folder / "venv" / "bin" / "python"),
          "script-paths", "has no bin/python", "correct environment.venv_path"),
    Fault("no kubeconfig", ("script",), lambda p: gone(p.folder / "kubeconfig"), "script-paths",
          "kubeconfig does not exist (K8S_KUBECONFIG", "correct k8s.kubeconfig"),
    Fault("a kubeconfig whose plug-in hangs", ("script",), plug_in, "cluster",
          "no answer within 0.5 s: the program sleep 4711, which it started, has not ended", "correct k8s.kubeconfig"),
    Fault("a script's LiteLLM of an earlier launch", ("script",), lambda p: hold(p, "infrastructure.litellm_port"),
          "script-ports", "trials would reach that one", "--set infrastructure.litellm_port=",
          status="warn"),
    Fault("a script's Ray of an earlier launch", ("script",), lambda p: hold(p, "infrastructure.ray_port"),
          "script-ports", "held by pid", "--set infrastructure.ray_port=", status="warn"),
    Fault("no cluster", ("script",), lambda p: kubectl(p.folder, "echo 'The connection was refused' >&2; exit 1", ""),
          "cluster", "kubeconfig: The connection was refused", "correct k8s.kubeconfig"),
    Fault("no node is ready", ("script",), lambda p: kubectl(p.folder, f"echo '{NODES % False}'", CLUSTER[1]),
          "cluster", "none of its 1 nodes is ready", "wait for a node"),
    Fault("no right to create pods", ("script",),
          lambda p: kubectl(p.folder, CLUSTER[0], """echo '{"status": {"allowed": false}}'"""),
          "cluster", "may not create pods in namespace default", "k8s.namespace"),
    Fault("rights that are not told", ("script",), lambda p: kubectl(p.folder, CLUSTER[0], "echo no >&2; exit 1"),
          "cluster", "whether it permits pods in namespace default is not known: no", status="skipped"),
    Fault("a variable of the user's own", ("script",), lambda p: p.set("trainer.env={MODEL_PATH: /no/such}"),
          "script-paths", "/no/such does not exist (MODEL_PATH", "correct"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "topology"),
    [pytest.param(fault, where, id=f"{fault.name}, {where}") for fault in FAULTS for where in fault.where],
)
def test_one_check_says_what_is_wrong(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], fault: Fault, topology: str
) -> None:
    broken = place(topology)
    fault.breaks(broken)
    code, checks = checked(broken, capsys)

    def filled(text: str) -> str:
        return text.replace("{folder}", str(broken.folder))

    found = [check for check in checks if check["id"] == fault.id and filled(fault.words) in check["text"]]
    assert [check["status"] for check in found] == [fault.status], checks
    (check,) = found
    assert filled(fault.fix) in check["fix"]
    if fault.patch:
        assert check["patch"] == {key: filled(value) for key, value in fault.patch.items()}
    assert code == (3 if fault.status == "fail" else 0)
    others = [c for c in checks if c is not check and c["status"] == "fail"]
    assert others == [], "nothing else is wrong"
    assert [
        c for c in checks if c["id"] == fault.id and c["name"] == check["name"] and c["status"] == "ok"
    ] == []
    patch = ", ".join(f"{key}: {value}" for key, value in check["patch"].items()) or "-"
    row = f"{topology:10} {fault.name:48} {check['status']:7} {patch:40} {check['text']} | {check['fix']}"
    print(row.replace(str(broken.folder), "...")[:240])  # the table: pytest -n0 -s -k says_what


@pytest.mark.parametrize("topology", SERVING)
@pytest.mark.parametrize(
    ("says", "status", "words"),
    [
        ((404, "RepoNotFound", b""), "fail", f"has no model {HUB} (HTTP 404)"),
        ((401, "RepoNotFound", b""), "fail", f"has no model {HUB} (HTTP 401)"),
        ((401, "GatedRepo", b""), "fail", f"access to {HUB} is restricted"),
        ((404, "EntryNotFound", b""), "fail", "has no config.json"),
        ((503, "", b""), "skipped", "it answered HTTP 503"),
        (
            (200, "", b'{"num_attention_heads": 8, "num_key_value_heads": 4}'),
            "ok",
            "it is downloaded at the start",
        ),
        ((200, "", b'{"num_attention_heads": 7}'), "fail", "7 attention heads are not divisible by 2"),
        ((200, "", b"<html>log in</html>"), "skipped", "what it answers is no config.json"),
    ],
)
def test_the_hub_is_asked_for_a_model_that_is_not_cached(
    place: Callable[[str], Place],
    hub: Hub,
    capsys: pytest.CaptureFixture[str],
    topology: str,
    says: tuple[int, str, bytes],
    status: str,
    words: str,
) -> None:
    run = place(topology)
    run.set(f"model.model_path={HUB}")
    hub.says = says
    code, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert (check["status"], code) == (status, 3 if status == "fail" else 0) and words in check["text"]
    assert hub.asked == [(f"/{HUB}/resolve/main/config.json", "")]
    (weights,) = (check for check in checks if check["id"] == "model-weights")
    assert weights["status"] == "skipped", "weights that are not here are not ok"


def test_a_hub_that_does_not_answer_is_no_fault_and_no_good_news(
    place: Callable[[str], Place], hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("managed")
    run.set(f"model.model_path={HUB}")
    hub.silent = True
    code, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert (code, check["status"]) == (0, "skipped") and "is not known: it does not answer" in check["text"]


def test_a_token_that_is_none_is_not_shown(
    place: Callable[[str], Place], hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("verl")
    run.set(f"model.model_path={HUB}")
    run.env.setenv("HF_TOKEN", "odd\nsecret")
    code, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert (code, check["status"], hub.asked) == (0, "skipped", []) and "secret" not in json.dumps(checks)


def test_another_hub_is_not_taken_for_this_one(
    place: Callable[[str], Place], hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("managed")
    run.set(f"model.model_path={HUB}")
    run.env.setenv("VLLM_USE_MODELSCOPE", "True")
    code, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert (code, check["status"], hub.asked) == (0, "skipped", []) and "ModelScope" in check["text"]


def test_a_redirect_to_another_host_does_not_get_the_token(
    place: Callable[[str], Place], hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("verl")
    run.set(f"model.model_path={HUB}")
    run.env.setenv("HF_TOKEN", "hf_secret")
    hub.moved = f"http://localhost:{hub.server_address[1]}/elsewhere/config.json"
    hub.says = (200, "", b'{"num_attention_heads": 8}')
    code, _ = checked(run, capsys)
    assert code == 0 and hub.asked[1:] == [("/elsewhere/config.json", "")]
    assert hub.asked[0][1] == "Bearer hf_secret"


def test_a_token_that_the_replicas_do_not_get_is_told(
    place: Callable[[str], Place], hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check asks with the variables of the replicas, not with those of the shell."""
    run = place("managed")
    run.set(f"model.model_path={HUB}")
    run.env.setenv("HF_TOKEN", "hf_secret")
    hub.says = (401, "GatedRepo", b"")
    _, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert "add it to supervise.pass_env" in check["fix"] and "hf_secret" not in json.dumps(checks)
    run.set("supervise.pass_env=[HF_TOKEN]")
    _, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["name"] == "model")
    assert "pass_env" not in check["fix"]
    assert [token for _, token in hub.asked] == ["", "Bearer hf_secret"]


def test_who_holds_a_gpu_is_named(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = place("managed")
    run.gpus.held[1].append((os.getpid(), 70 * GIB))
    monkeypatch.setattr("liverl.preflight.gpus.in_pid_namespace", lambda: False)
    _, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["id"] == "gpus")
    (seen,) = check["evidence"]
    assert seen["text"].startswith(f"GPU 1: 70.0 of 80.0 GiB are used; pid {os.getpid()} of ")
    assert seen["text"].endswith("holds 70.0 GiB")


def test_a_driver_that_does_not_report_memory_is_no_good_news(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = place("managed")
    monkeypatch.setattr(TwoGpus, "nvmlDeviceGetMemoryInfo", TwoGpus._not_supported)
    code, checks = checked(run, capsys)
    (check,) = (check for check in checks if check["id"] == "gpus")
    assert (code, check["status"]) == (0, "skipped")


@pytest.mark.parametrize("command", ["sbatch", "/usr/bin/srun"])
def test_of_a_command_that_runs_elsewhere_no_path_and_no_gpu_is_judged(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    run = place("script")
    run.gpus.held.clear()
    run.set(f"trainer.command=[{command}, start.sh]")
    run.set("model.model_path=/only/there")
    _, checks = checked(run, capsys)
    found = {check["name"]: check["status"] for check in checks}
    assert (found["MODEL_PATH"], found["GPUs"]) == ("skipped", "skipped")


def test_dockers_sandboxes_need_no_kubeconfig(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("script")
    (run.folder / "kubeconfig").unlink()
    run.set("harbor_agent.environment_import_path=harbor_patch.environments.docker:DockerEnvironment")
    _, checks = checked(run, capsys)  # whether Docker is there is another check
    assert {c["name"]: c["status"] for c in checks}["K8S_KUBECONFIG"] == "skipped"


class Fine(NamedTuple):
    """What is no fault, though it looks like one: the status of the checks of the model and of its weights."""

    name: str
    where: Sequence[str]
    makes: Callable[[Place], Any]
    model: str
    weights: str | None


def mistral(p: Place) -> None:
    p.emptied()
    (p.model / "config.json").unlink()
    (p.model / "params.json").write_text('{"n_heads": 8, "n_kv_heads": 4}')
    safetensors(p.model / "consolidated.safetensors")


def gguf(p: Place) -> None:
    (p.model / "toy.gguf").write_bytes(b"GGUF")
    p.set("model.model_path={folder}/models/Toy-1B/toy.gguf")


FINE = (
    Fine("shards of another download beside a whole model", SERVING,
         lambda p: safetensors(p.model / "model-00001-of-00009.safetensors"), "ok", "ok"),
    Fine("one file of weights", SERVING,
         lambda p: (p.emptied(), safetensors(p.model / "model.safetensors")), "ok", "ok"),
    Fine("weights of torch", SERVING,
         lambda p: (p.emptied(), (p.model / "pytorch_model.bin").write_bytes(b"x")), "ok", "ok"),
    Fine("a link to the model", SERVING,
         lambda p: ((p.folder / "link").symlink_to(p.model), p.set("model.model_path={folder}/link")), "ok", "ok"),
    Fine("a model in the cache", SERVING, cached, "ok", "ok"),
    Fine("Mistral's own form", ("managed",), mistral, "ok", "ok"),
    Fine("a GGUF file", ("managed",), gguf, "skipped", None),
    Fine("a model in a store", SERVING, lambda p: p.set("model.model_path=s3://bucket/toy"), "skipped", "skipped"),
    Fine("a smoke model that the run makes", OF_VERL, lambda p: p.set("model.model_path=smoke:{folder}/s"), "skipped",
         None),
    Fine("another GPU is taken", OF_VERL,
         lambda p: p.gpus.held.update({2: [(os.getpid(), 70 * GIB)]}), "ok", "ok"),
    Fine("a GPU more than managed replicas take is taken", ("managed",),
         lambda p: p.gpus.held.update({0: [(os.getpid(), 70 * GIB)], 2: []}), "ok", "ok"),
    Fine("wandb's key in the file of wandb login", OF_VERL,
         lambda p: ((p.folder / "netrc").write_text("machine api.wandb.ai\n  login user\n  password x\n"),
                    p.set("credentials.wandb_mode=online"), p.set("supervise.pass_env=[NETRC]"),
                    p.env.setenv("NETRC", str(p.folder / "netrc"))), "ok", "ok"),
    Fine("wandb's key in a variable", OF_VERL,
         lambda p: (p.env.setenv("WANDB_API_KEY", "x" * 40), p.set("credentials.wandb_mode=online")), "ok", "ok"),
    Fine("wandb offline", OF_VERL, lambda p: p.set("credentials.wandb_mode=offline"), "ok", "ok"),
    Fine("nested sections without an end", SERVING,
         lambda p: (p.model / "config.json").write_text('{"text_config": ' * 50 + "{}" + "}" * 50), "ok", "ok"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("fine", "topology"),
    [pytest.param(one, where, id=f"{one.name}, {where}") for one in FINE for where in one.where],
)
def test_what_could_start_is_not_refused(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], fine: Fine, topology: str
) -> None:
    run = place(topology)
    fine.makes(run)
    code, checks = checked(run, capsys)
    assert code == 0 and not [check for check in checks if check["status"] == "fail"]
    assert not [check for check in checks if "fault of liverl-tui" in check["text"]]
    found = {check["id"]: check["status"] for check in reversed(checks)}
    assert (found["model"], found.get("model-weights")) == (fine.model, fine.weights)


def test_a_script_that_is_checked_is_not_executed(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str]
) -> None:
    run = place("script")
    (run.folder / "start.sh").write_text("touch started\n")
    (run.folder / "first").write_text("touch executed\n")
    run.env.setenv("BASH_ENV", str(run.folder / "first"))
    code, checks = checked(run, capsys)
    assert code == 0 and {c["id"]: c["status"] for c in checks}["script-syntax"] == "ok"


@pytest.mark.parametrize(
    ("topology", "more", "words"),
    [
        ("managed", "vllm.gen_tp=2", "4 experts, each 64 wide: 32 on each of 2 GPUs"),
        ("script", "trainer.env={ENABLE_R3: 'True'}", "ENABLE_R3 replays the routing of 4 experts"),
    ],
)
def test_experts_that_fit_are_told(
    place: Callable[[str], Place], capsys: pytest.CaptureFixture[str], topology: str, more: str, words: str
) -> None:
    run = place(topology)
    run.config(**SIZES, num_experts=4, moe_intermediate_size=64)
    run.set(more)
    _, checks = checked(run, capsys)
    found = [(check["status"], check["text"]) for check in checks if check["id"] == "experts"]
    assert found == [("ok", words)]
