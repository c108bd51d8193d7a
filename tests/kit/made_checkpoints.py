"""Checkpoints as verl 0.9.1 and the embedded trainer write them, and a program in the place of verl's model_merger."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

from liverl.embedded.policy import Policy
from liverl.embedded.trainer.checkpoint import DataState, commit, prepare
from liverl.embedded.trainer.grpo import AdamState
from liverl.observe.checkpoints import LATEST

KINDS = ("model", "optim", "extra_state")


def saved(path: Path) -> None:
    """A file as torch.save writes it: a ZIP archive."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"x" * 600)


def fsdp(base: Path, step: int, gpus: int = 2, roles: tuple[str, ...] = ("actor",)) -> Path:
    """A checkpoint as verl's FSDP engine writes it."""
    folder = base / f"global_step_{step}"
    for role in roles:
        (folder / role / "huggingface").mkdir(parents=True)
        (folder / role / "huggingface" / "config.json").write_text('{"architectures": ["X"]}')
        for kind in KINDS:
            for rank in range(gpus):
                saved(folder / role / f"{kind}_world_size_{gpus}_rank_{rank}.pt")
        (folder / role / "fsdp_config.json").write_text(
            json.dumps({"FSDP_version": 2, "world_size": gpus}, indent=4)
        )
    saved(folder / "data.pt")
    (base / LATEST).write_text(str(step))
    return folder


def megatron(base: Path, step: int) -> Path:
    """A checkpoint as verl's Megatron engine writes it."""
    folder = base / f"global_step_{step}"
    parts = {"model": "model/dist_ckpt", "optimizer": "optimizer/dist_ckpt", "hf_config": "model/huggingface"}
    for place in parts.values():
        (folder / "actor" / place).mkdir(parents=True)
        (folder / "actor" / place / "config.json").write_text("{}")
    contents = {name: {"path": place} for name, place in parts.items()}
    manifest = {"schema_version": 2, "framework": "megatron", "world_size": 16, "contents": contents}
    (folder / "actor" / "ckpt_contents.json").write_text(json.dumps(manifest))
    saved(folder / "data.pt")
    (base / LATEST).write_text(str(step))
    return folder


def embedded(base: Path, step: int) -> Path:
    """A checkpoint that the embedded trainer writes."""
    return commit(prepare(base, Policy(), AdamState(), DataState(global_step=step)))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


# In the place of an interpreter with verl: it checks what verl's parser checks, and writes a model.
MERGER = """#!{python}
import json, os, struct, sys
words = sys.argv[1:]
assert words[:3] == ["-m", "verl.model_merger", "merge"], words
options = dict(zip(words[3::2], words[4::2]))
assert options["--backend"] in ("fsdp", "megatron") and os.path.isdir(options["--local_dir"])
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
target = options["--target_dir"]
os.makedirs(target)
head = json.dumps({{"w": {{"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}}}).encode()
with open(target + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(head)) + head + b"1234"[: {bytes}])
open(target + "/config.json", "w").write("{{}}")
print("Loading 2 FSDP shards")
{then}
"""


def merger(folder: Path, then: str = "", written: int = 4) -> Path:
    path = folder / "python-with-verl"
    path.write_text(MERGER.format(python=sys.executable, then=then, bytes=written))
    path.chmod(0o755)
    return path
