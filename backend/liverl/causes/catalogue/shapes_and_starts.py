"""Signatures of tensors, adapters and engines that do not fit or do not come up."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="storage-size",
        component="torch",
        role="cause",
        pattern=(
            r"storage has wrong(?: byte)? size: expected (?P<wanted>-?\d{1,20}) got "
            r"(?P<has>-?\d{1,20})"
        ),
        needle="storage has wrong",
        title="A checkpoint file is damaged or incomplete",
        cause=(
            "torch.load found {has} elements where the file says {wanted}: it was cut while it was "
            "written or copied."
        ),
        fix="Resume from the checkpoint before it, or copy the file again.",
        source="torch/serialization.py",
        fires="RuntimeError: storage has wrong size: expected 0 got 512",
        spares="INFO storage has size 512, as expected",
    ),
    Signature(
        id="ranks-disagree",
        component="torch",
        role="cause",
        pattern=r"disagreement between rank0 and rank(?P<rank>\d{1,6})",
        needle="disagreement between rank0 and rank",
        title="Rank {rank} does something else than rank 0 (DeepSpeed ZeRO-3)",
        cause=(
            "Not all ranks use the same parameters in the same order: they take different branches, "
            "or have different numbers of batches."
        ),
        fix=(
            "Let all ranks call the model equally often, also when saving and evaluating; look for "
            "an if on the rank or on the data."
        ),
        source="deepspeed/runtime/zero/utils.py",
        fires="RuntimeError: disagreement between rank0 and rank1: rank0: [0, 1], rank1: [0]",
        spares="INFO no disagreement between rank0 and others",
    ),
    Signature(
        id="torch-view",
        component="torch",
        role="cause",
        pattern=(r"shape '(?P<shape>\[[^\]\n]{1,80}\])' is invalid for input of size (?P<size>\d{1,15})"),
        needle="]' is invalid for input of size ",
        title="A tensor of {size} elements cannot have the shape {shape}",
        cause=(
            "The configuration says other sizes than the tensor has: heads, head size or batch do "
            "not fit the checkpoint."
        ),
        fix="Compare config.json with the weights, and read the frame.",
        source="torch",
        fires="RuntimeError: shape '[1, 32, 128]' is invalid for input of size 3072",
        spares="INFO shape '[1, 32, 128]' for an input of size 4096",
    ),
    Signature(
        id="torch-index",
        component="torch",
        role="cause",
        pattern="IndexError: index out of range in self",
        needle="IndexError: index out of range in self",
        title="A token or position is outside of the model's table",
        cause=(
            "An id is larger than the embedding: tokens were added to the tokenizer and not to the "
            "model, or a position is beyond the context."
        ),
        fix=(
            "Compare len(tokenizer) with vocab_size of config.json (resize_token_embeddings), and "
            "cut inputs to the context."
        ),
        source="torch aten/native/TensorShape",
        fires="IndexError: index out of range in self",
        spares="IndexError: list index out of range",
    ),
    Signature(
        id="vllm-load-memory",
        component="vllm",
        role="cause",
        pattern="Failed to load model - not enough GPU memory",
        needle="Failed to load model - not enough GPU memory",
        title="The GPU has not enough memory for the model's weights",
        cause="vLLM ran out of GPU memory while it loaded the weights.",
        fix=(
            "Raise vllm.gen_tp, use a smaller or quantized model, and end other processes on the GPU "
            "(nvidia-smi)."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="vllm/v1/worker/gpu_model_runner.py",
        fires=(
            "torch.OutOfMemoryError: Failed to load model - not enough GPU memory. Try lowering "
            "--gpu-memory-utilization to free memory for weights, increasing --tensor-parallel-size, "
            "or using --quantization."
        ),
        spares="INFO Failed over; model load done, enough GPU memory",
    ),
    Signature(
        id="vllm-engine-message-timeout",
        component="vllm",
        role="waits",
        pattern=r"Timed out waiting for engines? (?:to send|core processes to send)[^\n]{0,80}",
        needle="Timed out waiting for engine",
        title="vLLM's engines did not report in time",
        cause=(
            "The API server waited for its engine processes, which did not come up in time: they "
            "still load, hang, or run on another node that cannot reach it."
        ),
        fix=(
            "Look at the engines' own lines; check --data-parallel-address and ports between nodes, "
            "and raise VLLM_ENGINE_READY_TIMEOUT_S for large models."
        ),
        source="vllm/v1/engine/core_client.py",
        fires=("TimeoutError: Timed out waiting for engines to send initial message on input socket."),
        spares="INFO no waiting for engines: all did send their message",
    ),
)
