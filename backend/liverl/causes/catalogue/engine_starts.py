"""Signatures of options, files and kernels with which vLLM's engine does not start."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="block-size-multiple",
        component="vllm",
        role="cause",
        pattern=r"Block size must be a multiple of (?P<of>\d{1,4})",
        needle="Block size must be a multiple of ",
        title="vLLM's block size must be a multiple of {of}",
        cause="The attention backend works on blocks of {of} tokens.",
        fix="Take --block-size away, or set it to a multiple of {of}.",
        source="vllm/v1/attention/backends",
        fires="ValueError: Block size must be a multiple of 16.",
        spares="INFO block size is a multiple of 16",
    ),
    Signature(
        id="block-size-divisible",
        component="vllm",
        role="cause",
        pattern=r"block[_ ]size must be divisible by \w{0,4} ?(?P<of>\w{1,30})",
        needle="size must be divisible by ",
        title="vLLM's block sizes do not fit each other (KV cache)",
        cause=(
            "The model's layers need KV cache blocks of different sizes, and one is no multiple of another."
        ),
        fix=(
            "Take --block-size and --mamba-block-size away; else switch prefix caching off, or update vLLM."
        ),
        source="vllm/v1/core/kv_cache_coordinator.py",
        fires=("ValueError: Each KV cache group's real block_size must be divisible by hash_block_size"),
        spares="INFO block_size is divisible",
    ),
    Signature(
        id="hybrid-cache",
        component="vllm",
        role="cause",
        pattern="Hybrid KV cache manager is disabled but failed to convert the KV cache specs",
        needle="Hybrid KV cache manager is disabled but failed to convert the KV cache specs",
        title="The model needs vLLM's hybrid KV cache manager, which is switched off",
        cause=(
            "The model mixes kinds of attention. A KV connector (LMCache, disaggregated prefill) or "
            "an option switched the manager off that serves them."
        ),
        fix=(
            "Take --disable-hybrid-kv-cache-manager and the KV connector away, or use a connector "
            "that supports hybrid models."
        ),
        source="vllm/v1/core/kv_cache_utils.py",
        fires=(
            "ValueError: Hybrid KV cache manager is disabled but failed to convert the KV cache "
            "specs to one unified type."
        ),
        spares="WARNING Hybrid KV cache manager is disabled for this hybrid model",
    ),
    Signature(
        id="mamba-blocks",
        component="vllm",
        role="cause",
        pattern=(
            r"max_num_seqs \((?P<seqs>\d{1,9})\) exceeds available Mamba cache blocks "
            r"\((?P<blocks>\d{1,9})\)"
        ),
        needle=") exceeds available Mamba cache blocks (",
        title="max_num_seqs ({seqs}) is more than the Mamba cache holds ({blocks})",
        cause=(
            "Each sequence needs one block of the Mamba cache, and the GPU's free memory has room "
            "for {blocks}."
        ),
        fix="Set vllm.max_num_seqs to {blocks} or less, or raise vllm.gpu_memory_utilization.",
        patch={"vllm.max_num_seqs": "{blocks}"},
        source="vllm/v1/worker/gpu_model_runner.py",
        fires="ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969).",
        spares="INFO max_num_seqs (256) fits the Mamba cache blocks (969)",
    ),
    Signature(
        id="image-tokens",
        component="vllm",
        role="cause",
        pattern=(
            r"max_tokens_per_mm_item \((?P<item>\d{1,9})\) is larger than max_num_batched_tokens "
            r"\((?P<has>\d{1,9})\)"
        ),
        needle=") is larger than max_num_batched_tokens (",
        title="One image or video may be {item} tokens, and a batch holds {has}",
        cause=(
            "Inputs that are no text cannot be cut with these options, so one must fit into "
            "max_num_batched_tokens."
        ),
        fix=(
            "Raise max_num_batched_tokens to {item} or more, or limit the size of images "
            "(mm_processor_kwargs, max_pixels)."
        ),
        source="vllm/v1/core/encoder_cache_manager.py",
        fires=(
            "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than "
            "max_num_batched_tokens (2048). Please increase max_num_batched_tokens."
        ),
        spares="INFO max_tokens_per_mm_item fits max_num_batched_tokens",
    ),
    Signature(
        id="image-count",
        component="vllm",
        role="cause",
        pattern=(
            r"At most (?P<most>\d{1,6}) (?P<what>\w{1,20})\(s\) may be provided in one "
            "(?:request|prompt)"
        ),
        needle="(s) may be provided in one ",
        title="A request had more than {most} {what}s",
        cause="vLLM allows {most} of them per request.",
        fix="Raise --limit-mm-per-prompt for {what}, or send fewer.",
        source="vllm/entrypoints/chat_utils.py",
        fires="ValueError: At most 1 image(s) may be provided in one request.",
        spares="INFO at most 1 image was provided",
    ),
    Signature(
        id="gpu-uuid",
        component="cuda",
        role="cause",
        where="exception",
        pattern=(r"ValueError: invalid literal for int\(\) with base 10: '(?P<id>(?:GPU|MIG)-[\w/-]{1,80})'"),
        needle="ValueError: invalid literal for int() with base 10: '",
        title="CUDA_VISIBLE_DEVICES names a GPU by its id, where a number is needed",
        cause="The program reads {id} as a number.",
        fix=("Set CUDA_VISIBLE_DEVICES to numbers (nvidia-smi -L lists them), or update the program."),
        command="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        source="vllm/platforms/cuda.py",
        fires="ValueError: invalid literal for int() with base 10: 'GPU-8dbd345c'",
        spares=(
            "Warning: Failed to set NUMA affinity: invalid literal for int() with base 10: 'GPU-8dbd345c'"
        ),
    ),
    *family(
        Signature(
            id="ray-driver-gpus",
            component="vllm",
            role="cause",
            pattern="Ray does not allocate any GPUs on the driver node",
            needle="Ray does not allocate any GPUs on the driver node",
            title="vLLM runs on a Ray node that has no free GPU",
            cause=(
                "vLLM's first worker must be on the node of its driver, and that node has no GPU, or "
                "others hold them."
            ),
            fix="Start vLLM on a node with GPUs, or place its driver there; see ray status.",
            command="ray status",
            source="vllm/v1/executor/ray_utils.py",
            fires=(
                "ValueError: Ray does not allocate any GPUs on the driver node. Consider adjusting the "
                "Ray placement group or running the driver on a GPU node."
            ),
            spares="INFO Ray allocates GPUs on the driver node",
        ),
        Text(
            id="ray-driver-gpus-other",
            pattern="Current node has no GPU available",
            needle="Current node has no GPU available",
            fires="ValueError: Current node has no GPU available. current_node_resource={}.",
            spares="INFO Ray allocates GPUs on the driver node",
        ),
    ),
    Signature(
        id="gpt-oss-vocabulary",
        component="vllm",
        role="cause",
        pattern="error downloading or loading vocab file",
        needle="error downloading or loading vocab file",
        title="gpt-oss's vocabulary could not be downloaded",
        cause=("openai_harmony loads its vocabulary from the internet when it starts, and did not get it."),
        fix=(
            "Download o200k_base.tiktoken and cl100k_base.tiktoken elsewhere, and set "
            "TIKTOKEN_ENCODINGS_BASE to their folder."
        ),
        source="openai_harmony",
        fires=(
            "openai_harmony.HarmonyError: error downloading or loading vocab file: failed to "
            "download or load vocab file"
        ),
        spares="INFO downloading the vocab file",
    ),
    Signature(
        id="deepgemm-refused",
        component="vllm",
        role="cause",
        pattern=(
            r"Assertion error \((?P<where>csrc/(?:apis|utils)/[\w.]{1,60}:\d{1,6})\): "
            r"(?P<what>[^\n]{1,160})"
        ),
        needle="Assertion error (csrc/",
        title="DeepGEMM refused what it was asked to compute",
        cause=(
            "A check in {where} failed: {what}. This GPU, the model's sizes or the build of DeepGEMM "
            "do not fit."
        ),
        fix=("Set VLLM_USE_DEEP_GEMM=0, or use the version of DeepGEMM that this vLLM asks for."),
        source="deep_gemm csrc",
        fires="RuntimeError: Assertion error (csrc/apis/gemm.hpp:42): Unknown recipe",
        spares="INFO csrc/apis/gemm.hpp was built",
    ),
    Signature(
        id="nvshmem-start",
        component="vllm",
        role="cause",
        pattern="nvshmem (?:initialization|setup) failed",
        needle="nvshmem ",
        title="NVSHMEM could not start",
        cause=(
            "Expert parallelism (DeepEP) talks over NVSHMEM, which found no InfiniBand adapter, no "
            "GPUDirect, or a driver without them."
        ),
        fix=(
            "Check nvidia-peermem, the HCA devices and ulimit -l in the container; "
            "NVSHMEM_DEBUG=INFO tells more."
        ),
        command="lsmod | grep peermem; ls /dev/infiniband; ulimit -l",
        source="nvshmem",
        fires="RuntimeError: nvshmem initialization failed, exiting",
        spares="INFO nvshmem initialization done",
    ),
    Signature(
        id="deepep-timeout",
        component="vllm",
        role="consequence",
        pattern="DeepEP (?:error: (?:CPU recv )?timeout|timeout)",
        needle="DeepEP ",
        title="A rank of expert parallelism did not answer (DeepEP)",
        fix="Look at the other ranks: the one that ended or hung first is the cause.",
        source="deep_ep csrc",
        fires="RuntimeError: DeepEP error: CPU recv timeout",
        spares="INFO DeepEP: all ranks answered",
    ),
    Signature(
        id="engine-process-died",
        component="vllm",
        role="consequence",
        pattern=r"Engine process \(pid (?P<pid>\d{1,10})\) died",
        needle="Engine process (pid ",
        title="vLLM's engine process (pid {pid}) ended without an error of its own",
        fix=(
            "Something killed it, or it crashed: look for an out-of-memory kill (dmesg, "
            "memory.events) and for an Xid of the GPU."
        ),
        tells=True,
        command="dmesg -T | grep -iE 'xid|killed process'",
        source="vllm/engine/multiprocessing/client.py",
        fires=("ERROR 12-01 13:05:02 client.py:282] RuntimeError('Engine process (pid 76) died.')"),
        spares="INFO Engine process (pid 76) is alive",
    ),
    Signature(
        id="nccl-register",
        component="nccl",
        role="cause",
        pattern=(
            r"NCCL WARN Call to (?P<call>ibv_reg_\w{1,30}) failed(?: with error (?!Cannot allocate "
            r"memory)(?P<what>[^\n]{1,80}))?$"
        ),
        needle="NCCL WARN Call to ibv_reg_",
        title="NCCL could not register memory with the InfiniBand adapter",
        cause=(
            "{call} failed: the adapter cannot reach the GPU's memory directly (GPUDirect), or the "
            "limit of locked memory is too low."
        ),
        fix=(
            "Load nvidia-peermem on the host, set ulimit -l unlimited; to go around it set "
            "NCCL_NET_GDR_LEVEL=LOC or NCCL_DMABUF_ENABLE=0."
        ),
        command="lsmod | grep peermem; ulimit -l",
        source="nccl/src/misc/ibvwrap.cc",
        fires=(
            "node1:4321:4355 [0] misc/ibvwrap.cc:182 NCCL WARN Call to ibv_reg_mr_iova2 failed with "
            "error Invalid argument"
        ),
        spares="node1:4321:4355 [0] NCCL INFO ibv_reg_mr_iova2 done",
    ),
)
