"""Signatures of GPUs that are missing, too few, too old, or fail."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="cuda-illegal-access",
        component="cuda",
        role="cause",
        pattern="CUDA error: an illegal memory access was encountered",
        needle="CUDA error: an illegal memory access was encountered",
        title="A GPU kernel used an invalid address (illegal memory access)",
        cause=(
            "At the first forward pass: vllm.gen_tp does not fit the model's key/value heads. Later: a "
            "kernel of this version, or the attention backend."
        ),
        fix=(
            "Choose a vllm.gen_tp that divides num_key_value_heads; else set vllm.enforce_eager, or "
            "another attention backend; CUDA_LAUNCH_BLOCKING=1 shows the kernel."
        ),
        patch={"vllm.enforce_eager": "true"},
        source="github.com/vllm-project/vllm/issues/24430; LiveRL documentation, symptom B6",
        fires="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        spares="torch.AcceleratorError: CUDA error: device-side assert triggered",
    ),
    Signature(
        id="cuda-assert",
        component="cuda",
        role="cause",
        pattern="CUDA error: device-side assert triggered",
        needle="CUDA error: device-side assert triggered",
        title="A check inside a GPU kernel failed (usually an index out of range)",
        cause=(
            "A kernel got an index outside its table: a token id beyond the vocabulary, or probabilities "
            "that are NaN or negative."
        ),
        fix=(
            "Check that tokenizer and model belong together and that no metric is NaN; "
            "CUDA_LAUNCH_BLOCKING=1 shows the call."
        ),
        source="CUDA cudaErrorAssert, as torch prints it",
        fires="RuntimeError: CUDA error: device-side assert triggered",
        spares="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    Signature(
        id="cuda-hardware",
        component="cuda",
        role="cause",
        pattern=(
            "CUDA error: (?P<what>uncorrectable ECC error encountered|unknown error|"
            "the launch timed out and was terminated)"
        ),
        needle="CUDA error:",
        title="A GPU or its driver failed: {what}",
        cause=(
            "The device reported an error that a program cannot mend; after it, all later CUDA calls of "
            "the process fail."
        ),
        fix=(
            "Look at dmesg for NVRM Xid lines and at nvidia-smi -q -d ECC; leave that GPU out "
            "(CUDA_VISIBLE_DEVICES) and have it reset."
        ),
        command="dmesg -T | grep -i xid",
        source="CUDA error strings, as torch prints them",
        fires="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        spares="RuntimeError: CUDA error: out of memory",
    ),
    Signature(
        id="nvidia-xid",
        component="cuda",
        role="cause",
        pattern=(
            r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): (?!(?:13|31|43|45|68|109|48|63|64|92|94|95|140|171|172|79|74|38"
            r"|14[4-9]|150|61|62|119|120|122|143|154),)(?P<xid>\d{1,4}),"
        ),
        needle="NVRM: Xid (PCI:",
        title="The driver reports error Xid {xid} on GPU {bus}",
        cause=(
            "The GPU, its driver or a program on it failed; NVIDIA's list of Xid numbers says what {xid} means."
        ),
        fix="Leave GPU {bus} out (CUDA_VISIBLE_DEVICES) and have the host checked if it comes back.",
        command="nvidia-smi -q",
        source="NVIDIA XID documentation",
        fires="[1234.5] NVRM: Xid (PCI:0000:3b:00): 56, pid=4102, name=python3, CMDre 00000001",
        spares="[1234.5] NVRM: loading NVIDIA UNIX x86_64 Kernel Module; no Xid",
    ),
    Signature(
        id="no-gpu",
        component="cuda",
        role="cause",
        pattern="RuntimeError: No CUDA GPUs are available",
        needle="No CUDA GPUs are available",
        title="No GPU is visible to this process",
        cause="CUDA_VISIBLE_DEVICES hides all GPUs, the container has no GPU runtime, or there is none.",
        fix=(
            "Check nvidia-smi and CUDA_VISIBLE_DEVICES; start the container with --gpus all. Without "
            "GPUs use run.engine embedded or verl.device cpu."
        ),
        command="nvidia-smi; echo $CUDA_VISIBLE_DEVICES",
        source="torch/cuda/__init__.py",
        fires="RuntimeError: No CUDA GPUs are available",
        spares="RuntimeError: CUDA error: out of memory",
    ),
    Signature(
        id="no-nvidia-driver",
        component="cuda",
        role="cause",
        pattern="Found no NVIDIA driver on your system",
        needle="Found no NVIDIA driver on your system",
        title="There is no NVIDIA driver on this host",
        cause=(
            "torch found no driver: the host has no GPU, or the container was started without its GPU "
            "runtime."
        ),
        fix="Start the container with --gpus all, or use run.engine embedded or verl.device cpu.",
        command="nvidia-smi",
        source="torch/csrc/cuda/Module.cpp",
        fires=(
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA "
            "GPU and installed a driver from http://www.nvidia.com/Download/index.aspx"
        ),
        spares="INFO Found NVIDIA driver 575.57 on your system",
    ),
    Signature(
        id="no-device-type",
        component="vllm",
        role="cause",
        pattern="Failed to infer device type",
        needle="Failed to infer device type",
        title="vLLM found no GPU of any kind",
        cause="No GPU is visible, or the installed vLLM was built for another kind of device.",
        fix=(
            "Check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPU runtime; without GPUs use "
            "run.engine embedded."
        ),
        command="nvidia-smi",
        source="vllm/config/device.py",
        fires=(
            "RuntimeError: Failed to infer device type, please set the environment variable "
            "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging to help debug the issue."
        ),
        spares="INFO Automatically inferred device type cuda; 8 devices",
    ),
    Signature(
        id="too-few-gpus-vllm",
        component="vllm",
        role="cause",
        pattern=(
            r"World size \((?P<wanted>\d{1,5})\) is larger than the number of available GPUs "
            r"\((?P<has>\d{1,5})\) in this node"
        ),
        needle="World size (",
        title="vLLM wants {wanted} GPUs, and this host shows {has}",
        cause="vllm.gen_tp asks for {wanted} GPUs per replica, and {has} are visible on this host.",
        fix="Lower vllm.gen_tp, or make more GPUs visible (CUDA_VISIBLE_DEVICES).",
        patch={"vllm.gen_tp": "{has}"},
        source="vllm/config/parallel.py",
        fires=(
            "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If "
            "this is intentional and you are using:"
        ),
        spares="INFO world_size=8 rank=0 local_rank=0",
    ),
    Signature(
        id="bf16-unsupported",
        component="cuda",
        role="cause",
        pattern=(
            r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your "
            r"(?P<gpu>[^\n]{1,80}?) GPU has compute capability (?P<cc>\d{1,2}\.\d)"
        ),
        needle="Bfloat16 is only supported on GPUs with compute capability of at least",
        title="{gpu} has no bfloat16 (compute capability {cc})",
        cause="bfloat16 needs compute capability 8.0; {gpu} has {cc}.",
        fix="Use float16: vllm.dtype.",
        patch={"vllm.dtype": "float16"},
        source="github.com/vllm-project/vllm/issues/1157",
        fires=(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
            "Your Tesla T4 GPU has compute capability 7.5. You can use float16 instead by explicitly "
            "setting the`dtype` flag in CLI, for example: --dtype=half."
        ),
        spares="INFO Upcasting torch.bfloat16 to torch.float32",
    ),
)
