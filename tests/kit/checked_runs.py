"""Runs that could start, for tests of what is found before the start: a model with weights, data, a launch script, and
two GPUs (SIMULATED: NVML is; the rest are real files)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import yaml

from liverl.embedded import modeldir
from liverl.util.parquet import parquet

GIB = 1 << 30
ROWS = parquet({"prompt": ["a"]}, {"prompt": str})  # with the column that is asked for


def safetensors(path: Path, size: int = 64, *, cut: int = 0) -> None:
    """A file of safetensors with one tensor of ``size`` bytes, of which the last ``cut`` are missing."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * (size - cut))


def model(folder: Path, *, shards: int = 2, **config: Any) -> Path:
    """A checkpoint in the layout of transformers. ``config``: more of its config.json."""
    folder.mkdir(parents=True)
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    (folder / "config.json").write_text(json.dumps({"architectures": ["Toy"], **heads, **config}))
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    for name in names:
        safetensors(folder / name)
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    template(folder, "qwen3_coder")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def template(folder: Path, parser: str) -> None:
    """Give a model the chat template of a packaged policy: calls in the format that ``parser`` reads."""
    packaged = modeldir.BUILTIN / parser / "tokenizer_config.json"
    (folder / "tokenizer_config.json").write_bytes(packaged.read_bytes())


def configured(folder: Path, topology: str) -> Path:
    """A configuration, with the files that it names, of a run that could start. ``topology``: one of ``TOPOLOGIES``."""
    place = model(folder / "models" / "Toy-1B")
    (folder / "data").mkdir()
    for name in ("train", "val"):
        (folder / "data" / f"{name}.parquet").write_bytes(ROWS)
    (folder / "start.sh").write_text("true\n")
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / "kubeconfig").write_text("apiVersion: v1\n")
    run = {"run_root": str(folder / "runs"), "name": "n"}
    ports = {"litellm_port": 0, "ray_port": 0, "ray_dashboard_port": 0, "ngpus_per_node": 2}
    data = {f"{name}_index": str(folder / "data" / f"{name}.parquet") for name in ("train", "val")}
    settings: dict[str, Any] = {"run": run, "infrastructure": ports, "model": {"model_path": str(place)}}
    match topology:
        case "embedded":
            del settings["model"]
        case "managed":
            run |= {"engine": "vllm", "replicas": 1}
            settings |= {"trainer": {"kind": "none"}, "vllm": {"gen_tp": 2}}
        case "verl" | "in_process":
            run |= {"engine": "vllm", "topology": topology}
            settings |= {
                "trainer": {"kind": "verl"},
                "vllm": {"gen_tp": 2, "max_model_length": 4096},
                "data": data,
            }
            sizes = {"max_prompt_length": 1024, "max_response_length": 1024, "sp_size": 1}
            settings["training"] = {**sizes, "train_batch_size": 8, "train_prompt_mini_batch_size": 8}
        case "script":
            run |= {"engine": "vllm", "topology": "verl"}
            settings |= {"trainer": {"kind": "command", "command": ["bash", "start.sh"]}, "data": data}
            settings |= {"environment": {"venv_path": str(folder / "venv")}}
            settings |= {"k8s": {"kubeconfig": str(folder / "kubeconfig")}, "vllm": {"gen_tp": 2}}
            settings["infrastructure"] = {"ngpus_per_node": 2}
    file = folder / "my.yaml"
    file.write_text("# mine\n" + yaml.safe_dump(settings, sort_keys=False))
    return file


# SIMULATED: the cluster. What kubectl does when it is asked for nodes, and for the right to create pods.
NODES = """{"items": [{"status": {"conditions": [{"type": "Ready", "status": "%s"}]}}]}"""
CLUSTER = (f"echo '{NODES % True}'", """echo '{"status": {"allowed": true}}'""")


def kubectl(folder: Path, nodes: str, access: str) -> None:
    """Put a kubectl into ``folder``/bin, for PATH: what is said there must not depend on this host's."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "kubectl"
    program.write_text(f'#!/bin/sh\ncase "$*" in *nodes*) {nodes};; *) cat >/dev/null; {access};; esac\n')
    program.chmod(0o755)


TOPOLOGIES = ("embedded", "managed", "verl", "in_process", "script")


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every path below a folder, with its mode, size and time of change."""
    found = {}
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            stat = os.lstat(os.path.join(base, name))
            found[os.path.join(base, name)] = (stat.st_mode, stat.st_size, stat.st_mtime_ns)
    return found


class TwoGpus:
    """SIMULATED: pynvml with GPUs of 80 GiB. ``held``: index -> (pid, bytes) of the processes on it."""

    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = pynvml.NVML_TEMPERATURE_GPU, pynvml.NVML_CLOCK_SM
    nvmlMemory_v2 = pynvml.nvmlMemory_v2

    def __init__(self, number: int = 2) -> None:
        self.held: dict[int, list[tuple[int, int]]] = {index: [] for index in range(number)}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVMLError"):
            return getattr(pynvml, name)
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return self._not_supported

    def _not_supported(self, *_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.held)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, index: int) -> str:
        return f"GPU-{index:08x}"

    def nvmlDeviceGetName(self, _index: int) -> bytes:
        return b"Simulated"

    def nvmlDeviceGetMemoryInfo(self, index: int, _version: int = 0) -> Any:
        return SimpleNamespace(used=sum(size for _, size in self.held[index]), total=80 * GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, index: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.held[index]]
