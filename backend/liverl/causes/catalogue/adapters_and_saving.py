"""Signatures of adapters (LoRA) in engines, and of weights that cannot be saved."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="lora-manager",
        component="vllm",
        role="cause",
        pattern=r"'\w{0,20}ModelRunner\w{0,10}' object has no attribute 'lora_manager'",
        needle="' object has no attribute 'lora_manager'",
        title="An adapter is loaded into an engine that was started without LoRA",
        cause="vLLM was started without --enable-lora, and is asked to load an adapter.",
        fix=(
            "Start vLLM with --enable-lora and --max-lora-rank; in verl set lora_rank of the "
            "model, which switches it on."
        ),
        source="vllm/v1/worker/lora_model_runner_mixin.py",
        fires="AttributeError: 'GPUModelRunner' object has no attribute 'lora_manager'",
        spares="INFO lora_manager is ready",
    ),
    Signature(
        id="lora-rank-kinds",
        component="vllm",
        role="cause",
        pattern=(r"max_lora_rank \((?P<rank>\d{1,6})\) must be one of (?P<ranks>[\[(][\d, ]{1,80}[\])])"),
        needle="max_lora_rank (",
        title="vLLM does not take adapters of rank {rank}",
        cause="This version of vLLM allows the ranks {ranks}.",
        fix="Train with one of these ranks (lora_rank), or use a newer vLLM.",
        source="vllm/config/lora.py",
        fires="ValueError: max_lora_rank (128) must be one of (8, 16, 32, 64).",
        spares="INFO max_lora_rank (64)",
    ),
    Signature(
        id="lora-layer",
        component="vllm",
        role="cause",
        pattern=r"Base layer of type (?P<layer>[^\n]{1,160}) is not supported for LoRA",
        needle="Base layer of type ",
        title="vLLM cannot adapt a layer of this model (LoRA)",
        cause=(
            "The adapter changes {layer}, which this version of vLLM has no LoRA for, such as "
            "experts of an MoE model."
        ),
        fix="Leave such layers out of target_modules, train without LoRA, or use a newer vLLM.",
        source="vllm/lora/utils.py",
        fires=(
            "ValueError: Base layer of type <class "
            "'vllm.model_executor.layers.fused_moe.layer.FusedMoE'> is not supported for LoRA"
        ),
        spares="INFO Base layer of type Linear",
    ),
    Signature(
        id="tool-parser-tokens",
        component="vllm",
        role="cause",
        pattern=(
            r"(?P<parser>[A-Z][\w. ]{1,40}) [Tt]ool parser could not locate (?P<what>[^\n]{1,60}) in "
            r"the tokenizer"
        ),
        needle="ool parser could not locate ",
        title="The tool parser of vLLM does not fit this model ({parser})",
        cause=(
            "The parser looks for {what} among the model's tokens, and this tokenizer has none: "
            "the model writes its tool calls in another form."
        ),
        fix="Set model.tool_parser (--tool-call-parser) to the parser of this model's family.",
        source="vllm/tool_parsers",
        fires=(
            "RuntimeError: Hermes 2 Pro Tool parser could not locate tool call start/end tokens in "
            "the tokenizer!"
        ),
        spares="INFO Tool parser located in the tokenizer",
    ),
    Signature(
        id="saved-shared",
        component="torch",
        role="cause",
        pattern=(
            r"The weights trying to be saved contained shared tensors (?P<names>\[[^\n]{1,200}?\]) "
            r"that are mismatching"
        ),
        needle="The weights trying to be saved contained shared tensors ",
        title="The model cannot be saved: weights share memory",
        cause=(
            "Safetensors does not save tensors that share memory, unless the model's class "
            "declares them as tied: {names}."
        ),
        fix=(
            "Save with safe_serialization=False (save_safetensors=False in the trainer), or set "
            "tie_word_embeddings in the config to what the weights are."
        ),
        source="transformers/modeling_utils.py",
        fires=(
            "RuntimeError: The weights trying to be saved contained shared tensors [{'a.weight', "
            "'b.weight'}] that are mismatching the transformers base configuration."
        ),
        spares="INFO the weights contained no shared tensors",
    ),
    Signature(
        id="saved-shared-file",
        component="torch",
        role="cause",
        pattern=r"Some tensors share memory, this will lead to duplicate memory on disk",
        needle="Some tensors share memory, this will lead to duplicate memory on disk",
        title="Weights cannot be saved: some share memory",
        cause=(
            "Safetensors does not save tensors that share memory, such as tied embeddings and output layers."
        ),
        fix=(
            "Save with save_safetensors=False (or safetensors.torch.save_model), or untie or clone "
            "the weights first."
        ),
        source="safetensors/torch.py",
        fires=(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential "
            "differences when loading them again"
        ),
        spares="INFO Some tensors share memory",
    ),
    Signature(
        id="schedule-empty",
        component="verl",
        role="cause",
        pattern=r"assert self\.lr_decay_steps > 0",
        needle="assert self.lr_decay_steps > 0",
        title="The learning-rate schedule of Megatron has no steps",
        cause=(
            "The number of training steps that was computed is 0: all rollouts together have fewer "
            "samples than one global batch."
        ),
        fix=(
            "Raise the number of rollouts or samples, or lower the global batch size "
            "(training.train_batch_size)."
        ),
        source="megatron/core/optimizer_param_scheduler.py",
        fires="    assert self.lr_decay_steps > 0\nAssertionError",
        spares="INFO self.lr_decay_steps > 0",
    ),
    Signature(
        id="sleep-off",
        component="vllm",
        role="cause",
        pattern=r"[Ss]leep mode is not enabled",
        needle="leep mode is not enabled",
        title="A replica should sleep, and was started without sleep mode",
        cause=("The trainer asks the engine to give its GPU memory back, and the engine has no sleep mode."),
        fix=(
            "Start vLLM with --enable-sleep-mode (enable_sleep_mode=True), or switch "
            "free_cache_engine of verl's rollout off."
        ),
        source="vllm/v1/worker/gpu_worker.py",
        fires="AssertionError: Sleep mode is not enabled in the model config",
        spares="INFO Sleep mode is enabled",
    ),
    Signature(
        id="ray-module-unpickled",
        component="ray",
        role="cause",
        pattern=r"RaySystemError: System error: No module named '(?P<module>[\w.]{1,100})'",
        needle="RaySystemError: System error: No module named '",
        title="A Ray worker cannot import {module}",
        cause=(
            "An object was sent to a worker whose class or function lies in {module}, and that "
            "worker cannot import it: the module is only on the path of the driver."
        ),
        fix=(
            "Install it, or put its folder on PYTHONPATH of all nodes before Ray starts (or "
            "runtime_env working_dir / py_modules)."
        ),
        source="ray/_private/serialization.py",
        fires="ray.exceptions.RaySystemError: System error: No module named 'my_reward'",
        spares="ray.exceptions.RaySystemError: System error: the store is full",
    ),
    Signature(
        id="hydra-call-argument",
        component="verl",
        role="cause",
        pattern=(
            r"Error in call to target '(?P<target>[\w.]{1,160})':\n(?P<error>TypeError|ValueError|Asse"
            r"rtionError)\((?P<why>[^\n]{1,300})\)"
        ),
        needle="Error in call to target '",
        title="A part of the configuration is refused: {error}",
        cause="{target} was built from the configuration and says: {why}.",
        fix=(
            "Correct the keys below the full_key that the message names: remove what this version "
            "of verl does not know, add what it wants."
        ),
        source="hydra/_internal/instantiate/_instantiate2.py",
        fires=(
            "hydra.errors.InstantiationException: Error in call to target "
            "'verl.workers.config.ActorConfig':\nTypeError(\"got an unexpected keyword argument "
            "'use_foo'\")\nfull_key: actor"
        ),
        spares="Error in call to target 'verl.workers.config.FSDPActorConfig':\nsee above",
    ),
    *family(
        Signature(
            id="sglang-leak",
            component="vllm",
            role="cause",
            pattern=r"Mem Leak Detected!",
            needle="Mem Leak Detected!",
            title="SGLang's count of its KV cache does not add up",
            cause=(
                "SGLang checks after each idle phase that all of its KV cache is free or in use, and "
                "some of it is lost: a fault of this version, most often with speculative decoding, or "
                "a sparse or hybrid attention."
            ),
            fix=(
                "Use another version of SGLang, or switch off what it happens with: speculative "
                "decoding, the radix cache (disable_radix_cache), the overlapped schedule."
            ),
            source="sglang/srt/managers/scheduler_runtime_checker_mixin.py",
            fires=(
                "AssertionError: Mem Leak Detected! total_tokens=1029056 vs self.max_total_num_tokens=1029120"
            ),
            spares="INFO no Leak Detected",
        ),
        Text(
            id="sglang-leak-pool",
            pattern=r"memory leak detected!",
            needle="memory leak detected!",
            fires="ValueError: token_to_kv_pool_allocator memory leak detected! available_size=100",
            spares="INFO no memory leak detected",
        ),
    ),
)
