"""Signatures of sizes, kernels and parallel layouts that do not fit the model."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="slice-beyond",
        component="torch",
        role="cause",
        pattern=(
            r"start \((?P<start>\d{1,12})\) \+ length \((?P<length>\d{1,12})\) exceeds dimension size "
            r"\((?P<size>\d{1,12})\)"
        ),
        needle=") exceeds dimension size (",
        title="A tensor of size {size} has no part from {start} of length {length}",
        cause=(
            "While loading weights: the model's sizes, its vocabulary or the tensor parallel size do "
            "not fit the checkpoint. Else a slice is computed wrongly."
        ),
        fix=(
            "Compare config.json (vocab_size, heads) with the checkpoint, and choose a vllm.gen_tp "
            "that divides them."
        ),
        source="torch narrow",
        fires="RuntimeError: start (0) + length (1280) exceeds dimension size (1024).",
        spares="INFO start (0) + length (1280) is within dimension size",
    ),
    Signature(
        id="mask-shape",
        component="torch",
        role="cause",
        pattern=(
            r"The shape of the mask \[(?P<mask>[\d, ]{1,40})\] at index \d{1,3} does not match the "
            r"shape of the indexed tensor \[(?P<tensor>[\d, ]{1,40})\]"
        ),
        needle=" does not match the shape of the indexed tensor [",
        title="A mask of {mask} is used on a tensor of {tensor}",
        cause=("Mask and tensor have different lengths: padding, images or labels were counted differently."),
        fix=("Read the frame: compare the lengths of what is combined there, and the processor's options."),
        source="torch indexing",
        fires=(
            "IndexError: The shape of the mask [1024] at index 0 does not match the shape of the "
            "indexed tensor [1023, 2048] at index 0"
        ),
        spares="INFO the shape of the mask fits",
    ),
    Signature(
        id="index-beyond",
        component="torch",
        role="cause",
        where="exception",
        pattern=(
            r"index (?P<index>-?\d{1,12}) is out of bounds for (?:dimension|axis) (?P<axis>\d{1,3}) "
            r"with size (?P<size>\d{1,12})"
        ),
        needle=" is out of bounds for ",
        title="Index {index} is used on a tensor or list of {size} elements",
        cause="A position, token or class lies outside of the table that it is looked up in.",
        fix=("Read the frame; for tokens compare the tokenizer's size with the model's vocab_size."),
        source="torch, numpy",
        fires="IndexError: index 151936 is out of bounds for dimension 0 with size 151936",
        spares="INFO index 5 is within bounds for dimension 0",
    ),
    Signature(
        id="cat-sizes",
        component="torch",
        role="cause",
        pattern=(
            r"Sizes of tensors must match except in dimension (?P<axis>\d{1,3})\. Expected size "
            r"(?P<wanted>\d{1,12}) but got size (?P<has>\d{1,12})"
        ),
        needle="Sizes of tensors must match except in dimension ",
        title="Tensors of sizes {wanted} and {has} cannot be joined",
        cause="torch.cat needs tensors that differ only in dimension {axis}.",
        fix="Read the frame: pad or cut what is joined there to one length.",
        source="torch.cat",
        fires=(
            "RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 8 but "
            "got size 7 for tensor number 1 in the list."
        ),
        spares="INFO sizes of tensors match except in dimension 0",
    ),
    Signature(
        id="stack-sizes",
        component="torch",
        role="cause",
        pattern=(
            r"stack expects each tensor to be equal size, but got \[(?P<one>[\d, ]{0,40})\] at entry "
            r"\d{1,6} and \[(?P<other>[\d, ]{0,40})\]"
        ),
        needle="stack expects each tensor to be equal size, but got [",
        title="Tensors of sizes [{one}] and [{other}] cannot be stacked",
        cause="The examples of a batch have different lengths, and nothing pads them.",
        fix="Use a data collator that pads, or cut all examples to one length.",
        source="torch.stack",
        fires=(
            "RuntimeError: stack expects each tensor to be equal size, but got [5] at entry 0 and "
            "[6] at entry 1"
        ),
        spares="INFO stack: each tensor has equal size",
    ),
    Signature(
        id="topk-range",
        component="torch",
        role="cause",
        pattern="selected index k out of range",
        needle="selected index k out of range",
        title="More elements are selected than there are (top-k)",
        cause=("torch.topk was asked for more than the tensor has: too few experts, tokens or choices."),
        fix="Read the frame; lower k (num_experts_per_tok, top_k) to what the tensor has.",
        source="torch.topk",
        fires="RuntimeError: selected index k out of range",
        spares="INFO selected index k",
    ),
    *family(
        Signature(
            id="cutlass-failed",
            component="cuda",
            role="cause",
            pattern=r"cutlass\w{0,40} failed",
            needle="cutlass",
            title="A CUTLASS kernel failed on this GPU",
            cause=("The kernel was built for another kind of GPU, or does not support the model's sizes."),
            fix="Use another quantization or backend, or a build of vLLM for this GPU.",
            command="nvidia-smi --query-gpu=name,compute_cap --format=csv",
            source="cutlass",
            fires="RuntimeError: cutlass_scaled_mm failed: Error Internal",
            spares="INFO cutlass: no RuntimeError, no internal failure",
        ),
        Text(
            id="cutlass-failed-other",
            pattern="RuntimeError: Error Internal",
            needle="RuntimeError: Error Internal",
            fires="RuntimeError: Error Internal",
            spares="INFO cutlass: no RuntimeError, no internal failure",
        ),
    ),
    Signature(
        id="quantization-kernel",
        component="vllm",
        role="cause",
        pattern=(
            r"Failed to find a kernel that can implement the (?P<what>[\w ]{1,60}?)(?: linear layer| "
            r"layer|\.)"
        ),
        needle="Failed to find a kernel that can implement the ",
        title="vLLM has no kernel for this quantization here ({what})",
        cause=(
            "No kernel of this vLLM fits the group size, shapes, dtype or GPU; the lines after it "
            "say why for each."
        ),
        fix=(
            "Lower vllm.gen_tp, set vllm.dtype to float16, quantize with another group size, or use "
            "another version of vLLM."
        ),
        source="vllm/model_executor/layers/quantization/kernels",
        fires=("ValueError: Failed to find a kernel that can implement the WNA16 linear layer. Reasons:"),
        spares="INFO found a kernel that can implement the WNA16 linear layer",
    ),
    Signature(
        id="quantization-config",
        component="vllm",
        role="cause",
        pattern=r"Cannot find the config file for (?P<method>\w{1,40})",
        needle="Cannot find the config file for ",
        title="The checkpoint has no settings for its quantization ({method})",
        cause=(
            "vLLM was told {method}, and the folder has no quantization_config for it: it is not "
            "quantized so, or the file is missing."
        ),
        fix="Take --quantization away, or copy the missing config file of the checkpoint.",
        source="vllm/model_executor/model_loader/weight_utils.py",
        fires="ValueError: Cannot find the config file for awq",
        spares="INFO the config file for awq was found",
    ),
    Signature(
        id="bitsandbytes-parallel",
        component="vllm",
        role="cause",
        pattern="BitAndBytes quantization with TP or PP is not supported",
        needle="BitAndBytes quantization with TP or PP is not supported",
        title="bitsandbytes does not work with tensor parallelism in this vLLM",
        cause=("The checkpoint is quantized when it is loaded, which this version does only on one GPU."),
        fix="Set vllm.gen_tp to 1, or use AWQ, GPTQ or fp8 weights.",
        source="vllm/model_executor/model_loader",
        fires="ValueError: BitAndBytes quantization with TP or PP is not supported yet.",
        spares="INFO BitAndBytes quantization on one GPU",
    ),
    Signature(
        id="dp-rank-gpus",
        component="vllm",
        role="cause",
        pattern=r"DP adjusted local rank (?P<rank>\d{1,4}) is out of bounds",
        needle="DP adjusted local rank ",
        title="vLLM's data parallel replicas need more GPUs than there are",
        cause="A replica would use GPU {rank}, which this process cannot see.",
        fix=(
            "Lower --data-parallel-size (or --data-parallel-size-local) or --tensor-parallel-size, "
            "or show it more GPUs."
        ),
        command="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        source="vllm/v1/worker/gpu_worker.py",
        fires="AssertionError: DP adjusted local rank 8 is out of bounds.",
        spares="INFO DP adjusted local rank 3",
    ),
    Signature(
        id="multimodal-limit",
        component="vllm",
        role="cause",
        pattern="`?limit_mm_per_prompt`? is only supported for multimodal models",
        needle=" is only supported for multimodal models",
        title="limit_mm_per_prompt is set for a model that takes only text",
        cause=("The model has no pictures or sounds as input, or vLLM loads it as a model of text."),
        fix=("Take --limit-mm-per-prompt away, or check the model's architecture in config.json."),
        source="vllm/config",
        fires="ValueError: `limit_mm_per_prompt` is only supported for multimodal models.",
        spares="INFO limit_mm_per_prompt is set",
    ),
    Signature(
        id="model-module",
        component="vllm",
        role="cause",
        pattern=r"Cannot find model module\. '(?P<name>\w{1,100})' is not a registered model",
        needle="Cannot find model module. '",
        title="Neither vLLM nor transformers knows {name}",
        cause=(
            "The model's class is in no installed package, and the checkpoint brings no code for it "
            "(auto_map)."
        ),
        fix=(
            "Install newer versions of vLLM and transformers, or use a checkpoint with code and "
            "trust_remote_code."
        ),
        source="vllm/model_executor/models/registry.py",
        fires=(
            "ValueError: Cannot find model module. 'FooForCausalLM' is not a registered model in the "
            "Transformers library"
        ),
        spares="INFO 'FooForCausalLM' is a registered model",
    ),
)
