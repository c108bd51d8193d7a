"""Signatures of vLLM: its start, its memory, its model and its processes."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="engine-core-killed-at-start",
        component="vllm",
        role="cause",
        pattern=r"Failed core proc\(s\): \{[^}\n]{0,400}?: -(?P<number>\d{1,2})\b",
        needle="Failed core proc(s): {",
        title="vLLM's EngineCore process was killed by signal {number} while it started",
        cause="A process that a signal ends cannot say why: somebody sent it, the kernel did, or native code crashed.",
        fix=(
            "Signal 9: look for an out-of-memory kill (dmesg, memory.events); 6 or 11: for a crash of native code "
            "before it, and for an Xid of the GPU. If somebody killed it, start the replica again."
        ),
        command="dmesg -T | tail -50",
        source="vllm/v1/engine/utils.py",
        fires=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore_DP0': -9}"
        ),
        spares=(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore_DP0': 1}"
        ),
    ),
    Signature(
        id="vllm-no-cache-blocks",
        component="vllm",
        role="cause",
        pattern="No available memory for the cache blocks",
        needle="No available memory for the cache blocks",
        title="No GPU memory is left for the KV cache",
        cause=(
            "Weights and activations use all the GPU memory that vLLM may take "
            "(vllm.gpu_memory_utilization), so nothing is left for the KV cache."
        ),
        fix=(
            "Raise vllm.gpu_memory_utilization (vLLM's gpu_memory_utilization) if the GPU is otherwise "
            "free, lower vllm.max_model_length (max_model_len) and vllm.max_num_seqs, or raise "
            "vllm.gen_tp."
        ),
        patch={"vllm.gpu_memory_utilization": "0.92"},
        gpu_memory=True,
        source="recordings/cases/03-vllm06-no-cache-blocks-v0.log",
        fires=(
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine."
        ),
        spares="INFO # GPU blocks: 2101, # CPU blocks: 512",
    ),
    Signature(
        id="vllm-context-too-long",
        component="vllm",
        role="cause",
        pattern=(
            r"To serve at least one request with the models?'s max seq len \((?P<wanted>\d{1,12})\), "
            r"\(?(?P<need>[\d.]{1,12} Gi?B) KV cache is needed, which is larger than the available KV "
            r"cache memory \((?P<has>[\d.]{1,12} Gi?B)\)[^\n]{0,100}the estimated maximum model length is "
            r"(?P<fits>\d{1,12})"
        ),
        needle="To serve at least one request with the model",
        title="The context of {wanted} tokens does not fit: {need} of KV cache, {has} free",
        cause=(
            "One request of {wanted} tokens needs {need} of KV cache, and {has} are available; {fits} "
            "tokens fit."
        ),
        fix=(
            "Set vllm.max_model_length to {fits} or less, or raise vllm.gpu_memory_utilization or "
            "vllm.gen_tp."
        ),
        patch={"vllm.max_model_length": "{fits}"},
        source="recordings/vllm_fail_kv_too_small.log",
        fires=(
            "ValueError: To serve at least one request with the model's max seq len (15000000), (7.15 "
            "GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB). Based "
            "on the available memory, the estimated maximum model length is 2097024. Try increasing "
            "`gpu_memory_utilization`"
        ),
        spares="INFO Maximum concurrency for 15000000 tokens per request: 0.14x",
        recorded=True,
    ),
    Signature(
        id="model-config-invalid",
        component="vllm",
        role="cause",
        where="exception",
        pattern=(
            r"StrictDataclassClassValidationError: Class validation error for validator '(?P<check>\w{1,80})':"
            r"\s{1,20}(?P<reason>[^\n]{1,200})"
        ),
        needle="StrictDataclassClassValidationError: Class validation error for validator '",
        title="The model's config.json contradicts itself",
        cause="transformers refuses the model's config.json ({check}): {reason}.",
        fix="Correct the model's config.json, or get it again from where the model came from.",
        source="tests/data/gpu_logs/model_config_wrong.log",
        fires=(
            "huggingface_hub.errors.StrictDataclassClassValidationError: Class validation error for validator "
            "'validate_layer_type':\n    ValueError: `num_hidden_layers` (48) must be equal to the number of "
            "layer types (2)"
        ),
        spares=(
            "huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field 'x':"
        ),
        recorded=True,
    ),
    Signature(
        id="vllm-context-beyond-model",
        component="vllm",
        role="cause",
        pattern=(
            r"User-specified max_model_len \((?P<wanted>\d{1,12})\) is greater than the derived "
            r"max_model_len \([^)\n]{0,120}?=(?P<most>\d{1,12})(?:\.0)?(?: or model_max_length=\S{1,20})? in "
            r"model's config\.json\)"
        ),
        needle="User-specified max_model_len (",
        title="The context of {wanted} tokens is longer than the model's {most}",
        cause="vllm.max_model_length is {wanted}, and the model was made for {most} tokens.",
        fix="Set vllm.max_model_length to {most} or less, or use a model with a longer context.",
        patch={"vllm.max_model_length": "{most}"},
        source="github.com/vllm-project/vllm/issues/3676",
        fires=(
            "Value error, User-specified max_model_len (999999) is greater than the derived max_model_len "
            "(max_position_embeddings=2048.0 or model_max_length=None in model's config.json)."
        ),
        recorded=True,
        spares="INFO Using max model len 8192",
    ),
    Signature(
        id="vllm-heads-not-divisible",
        component="vllm",
        role="cause",
        pattern=(
            r"Total number of attention heads \((?P<heads>\d{1,6})\) must be divisible by tensor parallel "
            r"size \((?P<tp>\d{1,6})\)"
        ),
        needle="must be divisible by tensor parallel size (",
        title="vllm.gen_tp {tp} does not divide the model's {heads} attention heads",
        cause=(
            "Tensor parallelism splits the {heads} attention heads evenly over vllm.gen_tp GPUs, and "
            "{tp} does not divide {heads}."
        ),
        fix="Set vllm.gen_tp to a divisor of {heads}.",
        patch={"vllm.gen_tp": "1"},
        source="recordings/vllm_fail_tp_not_dividing.log",
        fires=(
            "  Value error, Total number of attention heads (4) must be divisible by tensor parallel "
            "size (3). [type=value_error, input_value=ArgsKwargs((), {'model_co..."
        ),
        spares="INFO tensor_parallel_size=3",
        recorded=True,
    ),
    Signature(
        id="vllm-numa-binding",
        component="vllm",
        role="cause",
        pattern=(
            r"Not enough allowed NUMA nodes to bind threads of (?P<workers>\d{1,5}) local CPUWorkers\. "
            r"Allowed NUMA nodes are (?P<nodes>\[[\d, ]{0,80}\])"
        ),
        needle="Not enough allowed NUMA nodes to bind threads of",
        title="vLLM on CPU cannot bind {workers} workers to NUMA nodes {nodes}",
        cause="Each of the {workers} workers wants a NUMA node of its own, and there are only {nodes}.",
        fix="Lower vllm.gen_tp, or set VLLM_CPU_OMP_THREADS_BIND by hand.",
        patch={"vllm.gen_tp": "1"},
        source="recordings/vllm_fail_tp_numa_binding.log",
        fires=(
            "AssertionError: Not enough allowed NUMA nodes to bind threads of 3 local CPUWorkers. "
            "Allowed NUMA nodes are [0]. Please try to bind threads manually or decrease DP/TP/PP."
        ),
        spares="INFO Binding threads of 3 local CPUWorkers to NUMA nodes [0, 1, 2]",
        recorded=True,
    ),
    Signature(
        id="vllm-hung-worker",
        component="vllm",
        role="cause",
        pattern=r"TimeoutError: RPC call to (?P<method>\w{1,60}) timed out",
        needle="TimeoutError: RPC call to",
        title="A vLLM worker hung in {method}",
        cause=(
            "A worker process did not return from {method}: it hangs in a collective (NCCL) or a kernel, "
            "or was stopped. It is not the client's network."
        ),
        fix=(
            "Restart the replica. If it happens again, look at the GPUs (dmesg, Xid), try "
            "vllm.enforce_eager, and NCCL_DEBUG=INFO for collectives."
        ),
        source="recordings/cases/16-vllm-rpc-timeout-hung-worker.log",
        fires="TimeoutError: RPC call to sample_tokens timed out.",
        spares="TimeoutError: RPC server did not start",
    ),
    Signature(
        id="vllm-broadcast-wait",
        component="vllm",
        role="consequence",
        pattern=r"No available shared memory broadcast block found in (?P<seconds>\d{1,6}) seconds",
        needle="No available shared memory broadcast block found in",
        title="vLLM's workers have not answered for {seconds} seconds",
        fix="Wait while it compiles; later, look with py-spy at the worker and restart the replica.",
        severity="warning",
        alive=True,
        source="recordings/cases/16-vllm-rpc-timeout-hung-worker.log",
        fires=(
            "INFO 07-15 15:33:47 [shm_broadcast.py:705] No available shared memory broadcast block found "
            "in 60 seconds. This typically happens when some processes are hanging or doing some "
            "time-consuming work"
        ),
        spares="INFO shm_broadcast handle",
    ),
    Signature(
        id="vllm-engine-start-timeout",
        component="vllm",
        role="waits",
        pattern=(
            r"Timed out waiting for engine core processes to start[^\n]{0,200}VLLM_ENGINE_READY_TIMEOUT_S"
        ),
        needle="Timed out waiting for engine core processes to start",
        title="vLLM's engine did not start within its time limit",
        cause=(
            "Loading or compiling took longer than VLLM_ENGINE_READY_TIMEOUT_S: a slow disk, a cold "
            "compile cache, or a hung worker."
        ),
        fix=(
            "Copy the weights to a local disk, raise VLLM_ENGINE_READY_TIMEOUT_S in the environment, or "
            "set vllm.enforce_eager."
        ),
        patch={"vllm.enforce_eager": "true"},
        source="vllm/v1/engine/core_client.py",
        fires=(
            "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by "
            "slow weight loading for large models. Waited 600s (configured by "
            "VLLM_ENGINE_READY_TIMEOUT_S)."
        ),
        spares="INFO Waiting for engine core processes to start",
    ),
    Signature(
        id="vllm-architecture-unsupported",
        component="vllm",
        role="cause",
        pattern=r"Model architectures (?P<names>\[[^\]\n]{1,120}\]) are not supported for now",
        needle="are not supported for now",
        title="The engine does not know the model's architecture {names}",
        cause="The installed vLLM (or SGLang) has no implementation of {names}.",
        fix="Use a newer version of it (environments.vllm.requirements), or another model (model.model_path).",
        source="vllm/model_executor/models/registry.py",
        fires=(
            "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now. Supported "
            "architectures: dict_keys(['LlamaForCausalLM'])"
        ),
        spares="INFO Model architectures ['Qwen3ForCausalLM'] are supported",
    ),
    Signature(
        id="vllm-metrics-off",
        component="vllm",
        role="cause",
        pattern="Metrics monitoring requires disable_log_stats=False",
        needle="Metrics monitoring requires disable_log_stats=False",
        title="Metrics are wanted, and vLLM's statistics are switched off",
        cause="Prometheus is on in verl's rollout, and disable_log_stats is true.",
        fix='Set "actor_rollout_ref.rollout.disable_log_stats": false in trainer.overrides.',
        source="verl verl/workers/config/rollout.py",
        fires="AssertionError: Metrics monitoring requires disable_log_stats=False",
        spares="INFO disable_log_stats=False",
    ),
)
