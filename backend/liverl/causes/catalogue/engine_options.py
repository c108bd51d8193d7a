"""Signatures of vLLM's options and of models that do not fit them."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="vllm-context-cache-old",
        component="vllm",
        role="cause",
        pattern=(
            r"The model's max seq len \((?P<wanted>\d{1,12})\) is larger than the maximum number of "
            r"tokens that can be stored in KV cache \((?P<fits>\d{1,12})\)"
        ),
        needle=") is larger than the maximum number of tokens that can be stored in KV cache (",
        title="The context of {wanted} tokens does not fit: the KV cache holds {fits}",
        cause=("One request of {wanted} tokens needs more KV cache than there is; {fits} tokens fit."),
        fix=(
            "Set vllm.max_model_length to {fits} or less, or raise vllm.gpu_memory_utilization or "
            "vllm.gen_tp."
        ),
        patch={"vllm.max_model_length": "{fits}"},
        source="vllm/worker/worker.py, before 0.9",
        fires=(
            "ValueError: The model's max seq len (131072) is larger than the maximum number of "
            "tokens that can be stored in KV cache (61440). Try increasing `gpu_memory_utilization` "
            "or decreasing `max_model_len` when initializing the engine."
        ),
        spares="INFO The model's max seq len (4096) is stored in KV cache",
    ),
    Signature(
        id="vllm-context-cache",
        component="vllm",
        role="cause",
        pattern=(
            r"To serve at least one request with the models?'s max seq len \((?P<wanted>\d{1,12})\), "
            r"\(?(?P<need>[\d.]{1,12} Gi?B) KV cache is needed, which is larger than the available KV "
            r"cache memory \((?P<has>[\d.]{1,12} Gi?B)\)\. (?!Based on)"
        ),
        needle="B KV cache is needed, which is larger than the available KV cache memory (",
        title="The context of {wanted} tokens does not fit: {need} of KV cache, {has} free",
        cause=("One request of {wanted} tokens needs {need} of KV cache, and {has} are available."),
        fix=("Lower vllm.max_model_length, or raise vllm.gpu_memory_utilization or vllm.gen_tp."),
        source="vllm/v1/core/kv_cache_utils.py, 0.8",
        fires=(
            "ValueError: To serve at least one request with the models's max seq len (131072), "
            "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.13 "
            "GiB). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when "
            "initializing the engine."
        ),
        spares="INFO to serve one request with the model's max seq len (4096)",
    ),
    Signature(
        id="vllm-batched-tokens",
        component="vllm",
        role="cause",
        pattern=(
            r"max_num_batched_tokens \((?P<has>\d{1,12})\) is smaller than max_model_len "
            r"\((?P<wanted>\d{1,12})\)"
        ),
        needle=") is smaller than max_model_len (",
        title="max_num_batched_tokens ({has}) is smaller than the context ({wanted})",
        cause=(
            "Without chunked prefill a whole prompt must fit into one batch: {has} tokens are fewer "
            "than {wanted}."
        ),
        fix=(
            "Switch on vllm.enable_chunked_prefill, raise max_num_batched_tokens to {wanted}, or "
            "lower vllm.max_model_length."
        ),
        patch={"vllm.enable_chunked_prefill": "true"},
        source="vllm/config/scheduler.py",
        fires=(
            "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (4096). This "
            "effectively limits the maximum sequence length to max_num_batched_tokens"
        ),
        spares="INFO max_num_batched_tokens (8192), max_model_len (4096)",
    ),
    Signature(
        id="vllm-batched-seqs",
        component="vllm",
        role="cause",
        pattern=(
            r"max_num_batched_tokens \((?P<has>\d{1,12})\) must be greater than or equal to "
            r"max_num_seqs \((?P<seqs>\d{1,9})\)"
        ),
        needle=") must be greater than or equal to max_num_seqs (",
        title="max_num_seqs ({seqs}) is larger than max_num_batched_tokens ({has})",
        cause="Each running sequence needs a token per step, so {seqs} do not fit into {has}.",
        fix="Lower vllm.max_num_seqs to {has} or less, or raise max_num_batched_tokens.",
        patch={"vllm.max_num_seqs": "{has}"},
        source="vllm/config/scheduler.py",
        fires=(
            "ValueError: max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256)."
        ),
        spares="INFO max_num_batched_tokens (8192), max_num_seqs (256)",
    ),
    *family(
        Signature(
            id="vllm-gpus-cluster",
            component="vllm",
            role="cause",
            pattern="The number of required GPUs exceeds the total number of available GPUs",
            needle="The number of required GPUs exceeds the total number of available GPUs",
            title="vLLM wants more GPUs than there are",
            cause="vllm.gen_tp asks for more GPUs than the host or Ray's cluster has.",
            fix="Lower vllm.gen_tp, or make more GPUs visible or add nodes (ray status).",
            command="nvidia-smi -L; ray status",
            source="vllm/executor/ray_utils.py",
            fires=(
                "ValueError: The number of required GPUs exceeds the total number of available GPUs in "
                "the placement group."
            ),
            spares="INFO the number of GPUs in the placement group: 8",
        ),
        Text(
            id="vllm-tp-gpus",
            pattern=(
                r"Tensor parallel size \((?P<tp>\d{1,5})\) cannot be larger than the number of available "
                r"GPUs \((?P<has>\d{1,5})\)"
            ),
            needle=") cannot be larger than the number of available GPUs (",
            fires="ValueError: Tensor parallel size (8) cannot be larger than the number of available GPUs (4).",
            spares="INFO Tensor parallel size (4), number of available GPUs (4)",
        ),
    ),
    Signature(
        id="vllm-dp-memory",
        component="vllm",
        role="cause",
        pattern=(
            r"Free memory on device [^\n]{0,20}\((?P<free>[\d.]{1,12})/(?P<total>[\d.]{1,12}) GiB\) "
            r"on startup is less than (?!desired)(?P<what>[^\n]{1,120})"
        ),
        needle=" GiB) on startup is less than ",
        title="GPU memory is held by somebody else: {free} of {total} GiB free",
        cause="Less of the GPU is free than vLLM wants: {what}",
        fix=("End the other process on this GPU (nvidia-smi), or lower vllm.gpu_memory_utilization."),
        command="nvidia-smi",
        gpu_memory=True,
        source="vllm/v1/worker/utils.py",
        fires=(
            "ValueError: Free memory on device cuda:0 (10.11/79.25 GiB) on startup is less than the "
            "requested KV cache memory (20.0 GiB)."
        ),
        spares=(
            "ValueError: Free memory on device cuda:0 (10.11/79.25 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 71.3 GiB)."
        ),
    ),
    Signature(
        id="vllm-iteration-timeout",
        component="vllm",
        role="waits",
        pattern=r"Engine iteration timed out\. This should never happen",
        needle="Engine iteration timed out. This should never happen",
        title="A step of vLLM's engine hung until its time-out",
        cause=(
            "A step took longer than VLLM_ENGINE_ITERATION_TIMEOUT_S (60 s): a worker hangs in a "
            "collective or kernel, or the GPU failed."
        ),
        fix=(
            "Look for an error of a worker, an Xid (dmesg) and nvidia-smi; restart the replica, and "
            "try --disable-custom-all-reduce or NCCL_P2P_DISABLE=1 if it happens again."
        ),
        source="vllm/engine/async_llm_engine.py",
        fires=(
            "ERROR 06-13 02:36:52 async_llm_engine.py:532] Engine iteration timed out. This should "
            "never happen!"
        ),
        spares="INFO Engine iteration took 2 s; this should never be longer",
    ),
    Signature(
        id="vllm-ray-hung",
        component="vllm",
        role="waits",
        pattern=r"RayChannelTimeoutError: System error: (?P<what>[^\n]{1,120})",
        needle="RayChannelTimeoutError: System error: ",
        title="A Ray worker of vLLM did not answer in time",
        cause=(
            "vLLM waited for a worker on another process or node: {what} It hangs in a collective or "
            "kernel, has ended, or its node is lost."
        ),
        fix=(
            "Look for an error of a worker and at ray status; restart the replica; "
            "RAY_CGRAPH_get_timeout raises the limit if it was only slow."
        ),
        command="ray status",
        source="ray/experimental/channel",
        fires=(
            "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object "
            "available to read. ObjectID: 00be2ae2, timeout: 300"
        ),
        spares="INFO System: no error, RayChannelTimeoutError is handled",
    ),
    Signature(
        id="vllm-lora-rank",
        component="vllm",
        role="cause",
        pattern=r"LoRA rank (?P<rank>\d{1,6}) is greater than max_lora_rank (?P<most>\d{1,6})",
        needle=" is greater than max_lora_rank ",
        title="The adapter's rank {rank} is larger than vLLM allows ({most})",
        cause="vLLM was started for adapters of a rank up to {most}.",
        fix="Start it with --max-lora-rank {rank} (one of 8, 16, 32, 64, 128, 256, 320, 512).",
        source="vllm/lora/peft_helper.py",
        fires="ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
        spares="INFO LoRA rank 16, max_lora_rank 64",
    ),
    Signature(
        id="vllm-lora-modules",
        component="vllm",
        role="cause",
        pattern=(
            r"While loading (?P<path>\S{1,300}), expected target modules in "
            r"(?P<wanted>\[?[^\n]{1,200}?) but received (?P<has>[^\n]{1,200}?)\.(?: |$|\n)"
        ),
        needle=", expected target modules in ",
        title="The adapter changes layers that vLLM cannot adapt",
        cause="The adapter {path} has weights for {has}.",
        fix="Train the adapter on the layers that vLLM supports, or merge it into the model.",
        source="vllm/lora/lora_model.py",
        fires=(
            "ValueError: While loading /data/adapter, expected target modules in {'q_proj', "
            "'v_proj'} but received ['lm_head']. Please verify that the loaded LoRA module is correct"
        ),
        spares="INFO While loading /data/adapter, target modules were found",
    ),
    Signature(
        id="vllm-lora-missing",
        component="vllm",
        role="cause",
        pattern=(r"Loading lora (?P<name>\S{1,100}) failed: No adapter found for (?P<path>\S{1,300})"),
        needle=" failed: No adapter found for ",
        title="There is no adapter at {path}",
        cause="The folder {path} has no adapter_config.json, or does not exist on this host.",
        fix="Check the path of the adapter, also inside the container.",
        source="vllm/lora/worker_manager.py",
        fires="ValueError: Loading lora policy failed: No adapter found for /data/adapter",
        spares="INFO Loading lora policy: adapter found for /data/adapter",
    ),
    Signature(
        id="vllm-multimodal-tokens",
        component="vllm",
        role="cause",
        pattern=(
            r"Attempted to assign (?P<has>[\d + =]{1,80}) multimodal tokens to (?P<places>\d{1,9}) "
            "placeholders"
        ),
        needle=" multimodal tokens to ",
        title="A picture or video does not fit its places in the prompt ({has} to {places})",
        cause=(
            "The prompt has {places} places for the picture's tokens, and the model computed {has}: "
            "the prompt was cut or changed, or processor and model do not fit."
        ),
        fix=(
            "Do not cut prompts with pictures, use one version of the processor everywhere, and upgrade vLLM."
        ),
        source="vllm/model_executor/models/utils.py",
        fires=("ValueError: Attempted to assign 1200 = 1200 multimodal tokens to 1196 placeholders"),
        spares="INFO assigned 1200 multimodal tokens to placeholders",
    ),
    Signature(
        id="vllm-prompt-long",
        component="vllm",
        role="cause",
        pattern=(
            r"The (?:decoder|encoder )?\s?prompt \((?:total )?length (?P<has>\d{1,9})\) is longer "
            r"than the maximum model length of (?P<most>\d{1,9})"
        ),
        needle=") is longer than the maximum model length of ",
        title="A prompt of {has} tokens is longer than the context ({most})",
        cause="vLLM refuses the prompt: {has} tokens, and the model's context is {most}.",
        fix="Cut prompts (training.max_prompt_length), or raise vllm.max_model_length.",
        alive=True,
        request=True,
        source="vllm/v1/engine/processor.py",
        fires=(
            "ValueError: The decoder prompt (length 40983) is longer than the maximum model length "
            "of 40960. Make sure that `max_model_len` is no smaller than the number of text tokens."
        ),
        spares="INFO The decoder prompt (length 120) fits the maximum model length",
    ),
    Signature(
        id="vllm-v1-unsupported",
        component="vllm",
        role="cause",
        pattern=r"VLLM_USE_V1=1 is not supported with (?P<what>[^\n]{1,120}?)\.?(?:\n|$)",
        needle="VLLM_USE_V1=1 is not supported with ",
        title="vLLM's V1 engine does not support an option that is set",
        cause="VLLM_USE_V1=1 is set, and V1 does not work with {what}.",
        fix="Unset VLLM_USE_V1, or take that option away.",
        source="vllm/engine/arg_utils.py",
        fires="NotImplementedError: VLLM_USE_V1=1 is not supported with --kv-cache-dtype.",
        spares="INFO VLLM_USE_V1=1 is supported with this option",
    ),
    Signature(
        id="vllm-argument",
        component="vllm",
        role="cause",
        pattern=(
            r"vllm(?: serve)?: error: (?:unrecognized arguments: (?P<arguments>[^\n]{1,200})|argument "
            r"[^\n]{1,200}|ambiguous option[^\n]{1,200})"
        ),
        needle=": error: ",
        title="vLLM does not know an argument of its command line",
        cause=("The installed vLLM has no such argument, or not with this value: another version had it."),
        fix=("Run vllm serve --help=listgroup, and correct the argument or install the version that has it."),
        source="vllm/utils argparse",
        fires="vllm serve: error: unrecognized arguments: --swap-space-gb 4",
        spares="INFO vllm serve: argument --swap-space 4",
    ),
    Signature(
        id="vllm-kv-page-size",
        component="vllm",
        role="cause",
        pattern=r"assert \w{1,30}\.page_size_bytes == \w{1,30}",
        needle=".page_size_bytes == ",
        title="vLLM cannot lay out the KV cache of this model",
        cause=(
            "The layers of this model need pages of different sizes, which this version of vLLM "
            "cannot join (hybrid models, speculative decoding, or a dtype of the cache)."
        ),
        fix=(
            "Leave out speculative decoding and --kv-cache-dtype, set no --block-size, or use "
            "another version of vLLM."
        ),
        source="vllm/v1/core/kv_cache_utils.py",
        fires="    assert new_spec.page_size_bytes == max_page_size",
        spares="    new_spec.page_size_bytes = max_page_size",
    ),
    Signature(
        id="vllm-chunk-local",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(
            r"Model (?P<name>\w{1,80}) does not support (?P<what>[A-Za-z][\w ]{1,60}) (?:yet|for "
            "now|but)"
        ),
        needle=" does not support ",
        title="{name} does not support {what} in this vLLM",
        cause="An option asks for {what}, which {name} cannot do.",
        fix="Take the option away, or use a newer vLLM.",
        source="vllm/model_executor/model_loader",
        fires=(
            "ValueError: Model PolicyForCausalLM does not support LoRA but LoRA is enabled. Support "
            "for this model may be added in the future."
        ),
        spares="INFO Model PolicyForCausalLM does support LoRA",
    ),
)
