"""Signatures of GPU memory."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="cuda-oom-load",
        component="cuda",
        role="cause",
        pattern=(
            r"\A(?=[\s\S]*\bin (?:load_model|load_weights|make_layers|initialize_model|__init__)\b)(?![\s"
            r"\S]*\bin (?:update_actor|update_policy|update_critic|compute_log_prob|backward|capture_model"
            r"|profile_run|determine_available_memory|_initialize_kv_caches|update_weights)\b)[\s\S]*?CUDA"
            r" out of memory\. Tried to allocate (?P<tried>[\d.]{1,12} [KMG]iB)\. GPU (?P<gpu>\d{1,3}) "
            r"has a total capacity of (?P<total>[\d.]{1,12} [KMG]iB) of which (?P<free>[\d.]{1,12} "
            "(?:[KMG]iB|bytes)) is free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory while loading: {tried} wanted, {free} free",
        cause=(
            "The GPU memory ({total}) does not hold the weights of the model: {free} were free when "
            "{tried} more were wanted, or another process on the GPU holds a part."
        ),
        fix=(
            "See with nvidia-smi whether another process holds memory on GPU {gpu}; else raise "
            "vllm.gen_tp (tensor parallel over more GPUs) or use a smaller model."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="recordings/cases/01-vllm08-oom-at-load.log",
        fires=(
            "Traceback (most recent call last):\n  File "
            '"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 136, in '
            "load_model\n    self.model_runner.load_model()\ntorch.OutOfMemoryError: CUDA out of memory. "
            "Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.53 GiB of which 96.75 MiB is "
            "free. Process 4102 has 23.43 GiB memory in use."
        ),
        spares=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total "
            "capacity of 23.53 GiB of which 96.75 MiB is free."
        ),
    ),
    Signature(
        id="cuda-oom-training",
        component="cuda",
        role="cause",
        pattern=(
            r"\A(?=[\s\S]*\bin (?:update_actor|update_policy|update_critic|compute_log_prob|backward)\b)["
            r"\s\S]*?CUDA out of memory\. Tried to allocate (?P<tried>[\d.]{1,12} [KMG]iB)\. GPU "
            r"(?P<gpu>\d{1,3}) has a total capacity of (?P<total>[\d.]{1,12} [KMG]iB) of which "
            r"(?P<free>[\d.]{1,12} (?:[KMG]iB|bytes)) is free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory in the update: {tried} wanted, {free} free",
        cause=(
            "The batch of the update does not fit the GPU ({total}) beside weights and optimizer: {free} "
            "were free when {tried} more were wanted."
        ),
        fix=(
            "Shorten training.max_response_length, raise training.sp_size, switch on "
            "training.actor_offload and training.ref_offload, or give the engine less "
            "(vllm.gpu_memory_utilization); where trainer.overrides sets the size of micro batches "
            "(ppo_micro_batch_size_per_gpu, or ppo_max_token_len_per_gpu with dynamic ones), lower that first."
        ),
        patch={"training.actor_offload": "true", "training.ref_offload": "true"},
        gpu_memory=True,
        source="verl issues; torch c10/cuda/CUDACachingAllocator.cpp",
        fires=(
            'Traceback (most recent call last):\n  File "/opt/verl/verl/workers/fsdp_workers.py", line '
            "700, in update_actor\n    metrics = self.actor.update_policy(data=data)\ntorch.OutOfMemoryErro"
            "r: CUDA out of memory. Tried to allocate 18.55 GiB. GPU 3 has a total capacity of 79.10 GiB "
            "of which 9.61 GiB is free. Including non-PyTorch memory, this process has 69.48 GiB memory "
            "in use."
        ),
        spares=(
            'Traceback (most recent call last):\n  File "/opt/vllm/v1/worker/gpu_worker.py", line 136, in '
            "load_model\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB. GPU 3 "
            "has a total capacity of 79.10 GiB of which 9.61 GiB is free."
        ),
    ),
    Signature(
        id="cuda-oom-capture",
        component="cuda",
        role="cause",
        pattern=(
            r"\A(?=[\s\S]*\bin (?:capture_model|_capture_cudagraphs|profile_run|determine_available_memory"
            r"|_initialize_kv_caches)\b)[\s\S]*?CUDA out of memory\. Tried to allocate "
            r"(?P<tried>[\d.]{1,12} [KMG]iB)\. GPU (?P<gpu>\d{1,3}) has a total capacity of "
            r"(?P<total>[\d.]{1,12} [KMG]iB) of which (?P<free>[\d.]{1,12} (?:[KMG]iB|bytes)) is free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory while vLLM measures or captures ({tried} wanted)",
        cause=(
            "The weights fit the GPU ({total}), and the largest batch or the CUDA graphs did not: {free} "
            "were free when {tried} more were wanted."
        ),
        fix=(
            "Lower vllm.max_num_seqs or vllm.gpu_memory_utilization, or switch off CUDA graphs with "
            "vllm.enforce_eager."
        ),
        patch={"vllm.enforce_eager": "true"},
        gpu_memory=True,
        source="vllm/v1/worker/gpu_model_runner.py; torch c10/cuda/CUDACachingAllocator.cpp",
        fires=(
            "Traceback (most recent call last):\n  File "
            '"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py", line 2000, in '
            "profile_run\n    hidden_states = self._dummy_run(self.max_num_tokens)\ntorch.OutOfMemoryError:"
            " CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
            "which 1.20 GiB is free."
        ),
        spares=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total "
            "capacity of 79.10 GiB of which 1.20 GiB is free."
        ),
    ),
    Signature(
        id="cuda-oom-weight-sync",
        component="cuda",
        role="cause",
        pattern=(
            r"\A(?=[\s\S]*\bin update_weights\b)(?![\s\S]*\bin "
            "(?:update_actor|update_policy|update_critic|compute_log_prob|backward|capture_model|profile_"
            r"run|determine_available_memory|_initialize_kv_caches)\b)[\s\S]*?CUDA out of memory\. Tried "
            r"to allocate (?P<tried>[\d.]{1,12} [KMG]iB)\. GPU (?P<gpu>\d{1,3}) has a total capacity of "
            r"(?P<total>[\d.]{1,12} [KMG]iB) of which (?P<free>[\d.]{1,12} (?:[KMG]iB|bytes)) is free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory in the weight sync: {tried} wanted, {free} free",
        cause=(
            "While the new weights go to the engine, both copies lie on the GPU ({total}); "
            "session_proxy.rewrite recompute fragments the memory as well."
        ),
        fix=(
            "Lower vllm.gpu_memory_utilization, switch on training.actor_offload, and use "
            "session_proxy.rewrite mask in place of recompute."
        ),
        patch={"training.actor_offload": "true"},
        gpu_memory=True,
        source="LiveRL documentation, symptom B26; torch c10/cuda/CUDACachingAllocator.cpp",
        fires=(
            'Traceback (most recent call last):\n  File "/opt/verl/verl/workers/engine_workers.py", line '
            "700, in update_weights\n    await self.rollout.update_weights(per_tensor_param)\ntorch.OutOfMe"
            "moryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 3 has a total capacity of "
            "79.10 GiB of which 96.00 MiB is free."
        ),
        spares=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 3 has a total "
            "capacity of 79.10 GiB of which 96.00 MiB is free."
        ),
    ),
    Signature(
        id="cuda-oom",
        component="cuda",
        role="cause",
        pattern=(
            r"\A(?![\s\S]*\bin (?:load_model|load_weights|make_layers|initialize_model|__init__|update_act"
            "or|update_policy|update_critic|compute_log_prob|backward|capture_model|_capture_cudagraphs|p"
            r"rofile_run|determine_available_memory|_initialize_kv_caches|update_weights)\b)[\s\S]*?CUDA "
            r"out of memory\. Tried to allocate (?P<tried>[\d.]{1,12} [KMG]iB)\. GPU (?P<gpu>\d{1,3}) has "
            r"a total capacity of (?P<total>[\d.]{1,12} [KMG]iB) of which (?P<free>[\d.]{1,12} "
            "(?:[KMG]iB|bytes)) is free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory: {tried} wanted, {free} of {total} free",
        cause=(
            "The GPU memory is used up: {free} of {total} were free when {tried} more were wanted. "
            "Weights, KV cache and batches share it, or another process on the GPU holds a part."
        ),
        fix=(
            "See with nvidia-smi who holds memory on GPU {gpu}; else lower vllm.gpu_memory_utilization "
            "or batch lengths, raise vllm.gen_tp, or use a smaller model."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="torch c10/cuda/CUDACachingAllocator.cpp",
        fires=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
            "capacity of 79.10 GiB of which 1.61 GiB is free. Process 881 has 40.00 GiB memory in use."
        ),
        spares="RuntimeError: CUDA error: out of memory",
    ),
    Signature(
        id="cuda-oom-old",
        component="cuda",
        role="cause",
        pattern=(
            r"CUDA out of memory\. Tried to allocate (?P<tried>[\d.]{1,12} [KMG]iB) \(GPU "
            r"(?P<gpu>\d{1,3}); (?P<total>[\d.]{1,12} [KMG]iB) total capacity; (?P<used>[\d.]{1,12} "
            r"[KMG]iB) already allocated; (?P<free>[\d.]{1,12} (?:[KMG]iB|bytes)) free"
        ),
        needle="CUDA out of memory. Tried to allocate",
        title="GPU {gpu} out of memory: {tried} wanted, {free} of {total} free",
        cause=(
            "The GPU memory is used up: {used} are allocated by this process, {free} of {total} were "
            "free when {tried} more were wanted."
        ),
        fix=(
            "See with nvidia-smi who holds memory on GPU {gpu}; else lower vllm.gpu_memory_utilization "
            "or batch lengths, raise vllm.gen_tp, or use a smaller model."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="torch 1.x c10/cuda/CUDACachingAllocator.cpp",
        fires=(
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.70 GiB total "
            "capacity; 22.11 GiB already allocated; 5.56 MiB free; 22.20 GiB reserved in total by "
            "PyTorch)"
        ),
        spares=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
            "capacity of 23.70 GiB of which 5.56 MiB is free."
        ),
    ),
    Signature(
        id="cuda-oom-driver",
        component="cuda",
        role="cause",
        pattern="CUDA error: out of memory",
        needle="CUDA error: out of memory",
        title="A GPU has no memory left, not even for a CUDA context",
        cause="Another process holds nearly the whole GPU, or a previous run's process is still alive.",
        fix="See with nvidia-smi who holds it, and stop leftovers of this run.",
        command="nvidia-smi",
        gpu_memory=True,
        source="CUDA cudaErrorMemoryAllocation, as torch prints it",
        fires="torch.AcceleratorError: CUDA error: out of memory",
        spares="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    ),
    Signature(
        id="cumem-oom",
        component="cuda",
        role="cause",
        pattern=r"CUDA Error: out of memory at (?P<where>\S{0,200}cumem_allocator\.cpp):\d{1,6}",
        needle="CUDA Error: out of memory at",
        title="The GPU has no room when the engine wakes up beside the trainer",
        cause=(
            "vLLM takes its GPU memory back after a training step, and the trainer still holds too much of "
            "the GPU."
        ),
        fix=(
            "Lower vllm.gpu_memory_utilization and switch on training.actor_offload and training.ref_offload."
        ),
        patch={
            "vllm.gpu_memory_utilization": "0.45",
            "training.actor_offload": "true",
            "training.ref_offload": "true",
        },
        gpu_memory=True,
        source="verl issue 302",
        fires="CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
        spares="torch.OutOfMemoryError: CUDA out of memory.",
    ),
    Signature(
        id="vllm-sleep-memory-grew",
        component="vllm",
        role="cause",
        pattern="Memory usage increased after sleeping",
        needle="Memory usage increased after sleeping",
        title="Another process took GPU memory while the engine was put to sleep",
        cause=(
            "vLLM gave its memory back before the update and checks that more is free than before; another process had "
            "taken it at once."
        ),
        fix="See with nvidia-smi who holds the GPU and stop it; the GPUs of a run must not be shared.",
        command="nvidia-smi",
        gpu_memory=True,
        source="vllm/v1/worker/gpu_worker.py; vLLM 0.24.0 and verl 0.9.1 on an H100",
        fires="AssertionError: Memory usage increased after sleeping.",
        spares="INFO 11-24 18:26:24 [gpu_worker.py:160] Sleep mode freed 15.60 GiB memory, 0.99 GiB is still in use.",
        recorded=True,
    ),
    Signature(
        id="sampler-oom",
        component="vllm",
        role="cause",
        pattern=(
            r"CUDA out of memory occurred when warming up sampler with (?P<seqs>\d{1,7}) dummy requests"
        ),
        needle="CUDA out of memory occurred when warming up sampler with",
        title="GPU out of memory: too many sequences at once ({seqs})",
        cause="The sampler does not fit the GPU with {seqs} sequences.",
        fix="Lower vllm.max_num_seqs or vllm.gpu_memory_utilization.",
        patch={"vllm.max_num_seqs": "32"},
        gpu_memory=True,
        source="vllm/v1/worker/gpu_model_runner.py",
        fires=(
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. "
            "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
        ),
        spares="INFO Warming up sampler with 256 dummy requests",
    ),
    Signature(
        id="gpu-memory-held",
        component="vllm",
        role="cause",
        pattern=(
            r"Free memory on device (?:cuda:(?P<gpu>\d{1,3}) "
            r")?\((?P<free>[\d.]{1,12})/(?P<total>[\d.]{1,12}) GiB\) on startup is less than desired GPU "
            r"memory utilization \((?P<share>[\d.]{1,8}), (?P<wanted>[\d.]{1,12}) GiB\)"
        ),
        needle="on startup is less than desired GPU memory utilization (",
        title="GPU memory is held by somebody else: {free} of {total} GiB free",
        cause=(
            "vLLM wants {wanted} GiB ({share} of the GPU), and only {free} of {total} GiB are free: "
            "another process holds the rest."
        ),
        fix=(
            "See with nvidia-smi who holds the GPU and free it (stop leftovers of this run), or lower "
            "vllm.gpu_memory_utilization below the free share."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="recordings/cases/05-vllm09-gpu-already-used.log",
        fires=(
            "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU "
            "memory utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory "
            "used by other processes."
        ),
        spares=(
            "INFO Free memory on device (31.44/47.38 GiB) on startup. Desired GPU memory utilization is "
            "(0.5, 23.69 GiB)."
        ),
    ),
    Signature(
        id="gpu-memory-moved",
        component="vllm",
        role="cause",
        pattern=(
            r"Error in memory profiling\. Initial free memory (?P<before>[\d.]{1,20}(?: GiB)?), current "
            r"free memory (?P<after>[\d.]{1,20}(?: GiB)?)"
        ),
        needle="Error in memory profiling. Initial free memory",
        title="vLLM could not measure its GPU memory: {before} free before, {after} after",
        cause=(
            "Loading the model must leave less free memory, and it went from {before} to {after}: another process "
            "freed memory meanwhile (two replicas on one GPU, one that ended), or the model lies elsewhere."
        ),
        fix=(
            "Give each replica its own GPUs, wait until earlier processes on them have ended, and start replicas one "
            "after another (supervise.replica_stagger)."
        ),
        gpu_memory=True,
        source="vllm/v1/worker/gpu_worker.py",
        fires=(
            "AssertionError: Error in memory profiling. Initial free memory 40.02 GiB, current free "
            "memory 44.10 GiB. This happens when other processes sharing the same container release GPU "
            "memory while vLLM is profiling during initialization."
        ),
        spares="INFO Memory profiling takes 2.11 seconds",
    ),
    Signature(
        id="expandable-segments",
        component="cuda",
        role="cause",
        pattern="Expandable segments are not compatible with memory pool",
        needle="Expandable segments are not compatible with memory pool",
        title="PYTORCH_CUDA_ALLOC_CONF=expandable_segments cannot be used with sleep mode",
        cause="vLLM's sleep mode uses a memory pool, which torch's expandable segments exclude.",
        fix="Remove expandable_segments:True from PYTORCH_CUDA_ALLOC_CONF in the shell.",
        command="unset PYTORCH_CUDA_ALLOC_CONF",
        gpu_memory=True,
        source="vllm/device_allocator/cumem.py; vllm issue 40812",
        fires=(
            "AssertionError: Expandable segments are not compatible with memory pool. Please track "
            "https://github.com/pytorch/pytorch/issues/147851 for the latest updates."
        ),
        spares=(
            "INFO PYTORCH_CUDA_ALLOC_CONF: expandable_segments are not used; the memory pool of "
            "sleep mode is on"
        ),
    ),
    Signature(
        id="cuda-oom-short",
        component="cuda",
        role="cause",
        pattern=(
            r"CUDA out of memory\. Tried to allocate (?P<wanted>[\d.]{1,12} [KMGT]iB)"
            r"(?:\.?[ \t]{0,4}| \(GPU \d{1,3};[ \d.]{0,10})(?:\n|\Z)"  # cut, or wrapped to the width of a terminal
        ),
        where="exception",
        needle="CUDA out of memory. Tried to allocate",
        title="A GPU is out of memory: {wanted} more were wanted",
        cause="The message was cut before it names the GPU and what was free.",
        fix=(
            "See with nvidia-smi who holds the GPUs; else lower vllm.gpu_memory_utilization or batch lengths, or raise "
            "vllm.gen_tp."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="torch/csrc c10 CUDACachingAllocator, as wrappers that log only the first sentence show it",
        fires="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        spares=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of "
            "79.15 GiB of which 1.02 GiB is free."
        ),
    ),
)
