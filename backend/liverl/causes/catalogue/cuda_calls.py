"""Signatures of calls of CUDA, cuBLAS and cuDNN that failed."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="cuda-illegal-access-other",
        component="cuda",
        role="cause",
        pattern=(
            r"(?:Triton Error \[CUDA\]: |[Cc]uda error \S{1,200} '|\(CUDA_ERROR_ILLEGAL_ADDRESS, )an illegal "
            "memory access was encountered"
        ),
        needle="an illegal memory access was encountered",
        title="A GPU kernel used an invalid address (illegal memory access)",
        cause=(
            "A kernel of vLLM or Triton read or wrote outside its memory: a fault of that kernel "
            "with this model, batch or GPU."
        ),
        fix=(
            "Set vllm.enforce_eager, or another attention backend (VLLM_ATTENTION_BACKEND); for "
            "custom_all_reduce start vLLM with --disable-custom-all-reduce. CUDA_LAUNCH_BLOCKING=1 "
            "shows the kernel."
        ),
        patch={"vllm.enforce_eager": "true"},
        source="triton/backends/nvidia/driver.c; vllm csrc/custom_all_reduce.cuh",
        fires=(
            "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:368 'an illegal memory access "
            "was encountered'"
        ),
        spares="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    Signature(
        id="cuda-all-reduce",
        component="vllm",
        role="cause",
        pattern=(
            r"Failed: Cuda error (?P<where>\S{1,200}) '(?!an illegal memory "
            r"access)(?P<what>[^'\n]{1,120})'"
        ),
        needle="Failed: Cuda error ",
        title="vLLM's own all-reduce failed: {what}",
        cause="vLLM's kernel for sums over GPUs met a CUDA error at {where}: {what}.",
        fix=(
            "Start vLLM with --disable-custom-all-reduce, so that NCCL is used; if that fails too, "
            "check nvidia-smi topo -m and dmesg."
        ),
        command="nvidia-smi topo -m",
        source="vllm csrc/custom_all_reduce.cuh",
        fires="Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:346 'invalid argument'",
        spares=(
            "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:346 'an illegal memory access "
            "was encountered'"
        ),
    ),
    Signature(
        id="cuda-ordinal",
        component="cuda",
        role="cause",
        pattern="CUDA error: invalid device ordinal",
        needle="CUDA error: invalid device ordinal",
        title="A process asks for a GPU that it cannot see",
        cause=(
            "There are more processes or ranks than visible GPUs: each takes the GPU of its number, "
            "and the last ones have none."
        ),
        fix=(
            "Start at most as many ranks as GPUs are visible (vllm.gen_tp, "
            "infrastructure.ngpus_per_node, --nproc_per_node), and check CUDA_VISIBLE_DEVICES."
        ),
        command="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
        source="CUDA cudaErrorInvalidDevice",
        fires="torch.AcceleratorError: CUDA error: invalid device ordinal",
        spares="INFO CUDA device ordinal 3 is valid",
    ),
    Signature(
        id="cuda-busy",
        component="cuda",
        role="cause",
        pattern=(
            r"CUDA error: (?:all CUDA-capable devices are|CUDA-capable device\(s\) is/are) busy or "
            "unavailable"
        ),
        needle=" busy or unavailable",
        title="The GPU is busy or unavailable to this process",
        cause=(
            "Another process holds the GPU exclusively (compute mode Exclusive_Process), or MIG, MPS "
            "or the container does not give it to this one."
        ),
        fix=(
            "See who uses it and its compute mode (nvidia-smi -q -d COMPUTE); set the mode to "
            "Default, or choose another GPU."
        ),
        command="nvidia-smi; nvidia-smi -q -d COMPUTE | grep -i mode",
        source="CUDA cudaErrorDevicesUnavailable",
        fires="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        spares="INFO all CUDA-capable devices are idle",
    ),
    Signature(
        id="cuda-no-device",
        component="cuda",
        role="cause",
        pattern="no CUDA-capable device is detected",
        needle="no CUDA-capable device is detected",
        title="CUDA sees no GPU",
        cause=(
            "CUDA_VISIBLE_DEVICES hides all GPUs, the container was started without its GPU runtime, "
            "or the driver does not work."
        ),
        fix="Check nvidia-smi and CUDA_VISIBLE_DEVICES; start the container with --gpus all.",
        command="nvidia-smi; echo $CUDA_VISIBLE_DEVICES",
        source="CUDA cudaErrorNoDevice",
        fires="RuntimeError: CUDA error: no CUDA-capable device is detected",
        spares="INFO a CUDA-capable device is detected",
    ),
    Signature(
        id="cuda-ptx-toolchain",
        component="cuda",
        role="cause",
        pattern="the provided PTX was compiled with an unsupported toolchain",
        needle="the provided PTX was compiled with an unsupported toolchain",
        title="The driver is too old for the code that was compiled for the GPU",
        cause="A kernel was compiled by a newer CUDA than the driver knows.",
        fix=("Update the driver, or install torch and packages for the CUDA that nvidia-smi shows."),
        command="nvidia-smi",
        source="CUDA cudaErrorUnsupportedPtxVersion",
        fires=("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."),
        spares="INFO the provided PTX was compiled for this GPU",
    ),
    Signature(
        id="cuda-803",
        component="cuda",
        role="cause",
        pattern="Error 803: system has unsupported display driver / cuda driver combination",
        needle="Error 803: system has unsupported display driver / cuda driver combination",
        title="The CUDA driver library does not fit the driver of this host (error 803)",
        cause=(
            "The process loads a libcuda of another version than the kernel's driver: usually compat "
            "libraries of the container, or a driver that was updated without a restart."
        ),
        fix=(
            "Take /usr/local/cuda/compat out of LD_LIBRARY_PATH, use an image of a CUDA that the "
            "driver supports, or restart the host after a driver update."
        ),
        command="nvidia-smi; ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH",
        source="CUDA cudaErrorSystemDriverMismatch",
        fires=(
            "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error "
            "803: system has unsupported display driver / cuda driver combination"
        ),
        spares=(
            "UserWarning: CUDA initialization: Error 804: the driver of this system is of another combination"
        ),
    ),
    Signature(
        id="cuda-802",
        component="cuda",
        role="cause",
        pattern="(?:Error 802: |CUDA error: |Cuda failure (?:802 )?')system not yet initialized",
        needle="system not yet initialized",
        title="The GPUs are not ready: the fabric manager does not run (error 802)",
        cause=(
            "GPUs that are joined by NVSwitch need nvidia-fabricmanager, which does not run, failed, "
            "or has another version than the driver."
        ),
        fix=("Start it (systemctl restart nvidia-fabricmanager), and install the version of the driver."),
        command="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -i -A2 fabric",
        source="CUDA cudaErrorSystemNotReady",
        fires=("node1:77:77 [0] init.cc:416 NCCL WARN Cuda failure 802 'system not yet initialized'"),
        spares="INFO system initialized; error 802 is gone",
    ),
    Signature(
        id="cuda-unknown-setup",
        component="cuda",
        role="cause",
        pattern="CUDA unknown error - this may be due to an incorrectly set up environment",
        needle="CUDA unknown error - this may be due to an incorrectly set up environment",
        title="CUDA could not be initialized (unknown error)",
        cause=(
            "The driver's modules are in a bad state (often after sleep or an update), the container "
            "lacks /dev/nvidia-uvm, or CUDA_VISIBLE_DEVICES was changed too late."
        ),
        fix=(
            "Check nvidia-smi; load nvidia-uvm again (modprobe -r nvidia_uvm; modprobe nvidia_uvm) "
            "or restart the host; start the container with its GPU runtime."
        ),
        command="nvidia-smi; ls -l /dev/nvidia*",
        source="torch/csrc/cuda/Module.cpp",
        fires=(
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up "
            "environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start."
        ),
        spares="INFO CUDA environment is set up",
    ),
    Signature(
        id="cuda-fork",
        component="cuda",
        role="cause",
        pattern="Cannot re-initialize CUDA in forked subprocess",
        needle="Cannot re-initialize CUDA in forked subprocess",
        title="CUDA was used before a process was forked",
        cause="The parent process had used CUDA, and a process forked from it cannot use it.",
        fix=(
            "Start processes with spawn: VLLM_WORKER_MULTIPROC_METHOD=spawn for vLLM, "
            "multiprocessing.set_start_method('spawn') in code of yours; do not touch CUDA before."
        ),
        command="export VLLM_WORKER_MULTIPROC_METHOD=spawn",
        source="torch/cuda/__init__.py",
        fires=(
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
            "multiprocessing, you must use the 'spawn' start method"
        ),
        spares="INFO CUDA is initialized in a spawned subprocess",
    ),
    Signature(
        id="spawn-main-guard",
        component="python",
        role="cause",
        pattern=(
            r"attempt has been made to start a new process before the\s{1,12}current process has "
            "finished its bootstrapping phase"
        ),
        needle="attempt has been made to start a new process before the",
        title="A script starts processes while it is imported (no if __name__ guard)",
        cause=(
            "Processes are started with spawn, which imports the script again, and the script starts "
            "them at once."
        ),
        fix="Put what the script does below if __name__ == '__main__':.",
        source="CPython multiprocessing/spawn.py",
        fires=(
            "RuntimeError: \n        An attempt has been made to start a new process before "
            "the\n        current process has finished its bootstrapping phase."
        ),
        spares="INFO an attempt to start a new process after the bootstrapping phase",
    ),
    Signature(
        id="cublas-no-memory",
        component="cuda",
        role="cause",
        pattern=(
            "CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)(?: when calling "
            r"`(?P<call>[^`\n]{1,200}))?"
        ),
        needle="CUBLAS_STATUS_",
        title="cuBLAS found no GPU memory for its handle",
        cause=(
            "cuBLAS needs some memory beside torch's, and the GPU is full; also possible: an earlier "
            "error of a kernel."
        ),
        fix=(
            "Lower vllm.gpu_memory_utilization, end other processes on the GPU (nvidia-smi), and run "
            "once with CUDA_LAUNCH_BLOCKING=1 if memory is free."
        ),
        command="nvidia-smi",
        gpu_memory=True,
        source="cuBLAS, as torch prints it",
        fires=("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        spares=("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    ),
    Signature(
        id="cublas-failed",
        component="cuda",
        role="cause",
        pattern=(
            "CUBLAS_STATUS_(?P<status>INTERNAL_ERROR|EXECUTION_FAILED|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED) "
            r"when calling `(?P<call>\w{1,80})"
        ),
        needle=" when calling `",
        title="cuBLAS failed in {call}: {status}",
        cause=(
            "The GPU's matrix library refused or failed a call ({status}): another cuBLAS is loaded "
            "than torch was built for, a kernel failed before, or the GPU is full or faulty."
        ),
        fix=(
            "Unset LD_LIBRARY_PATH so that torch's own cuBLAS is loaded, reinstall nvidia-cublas at "
            "torch's version, check free GPU memory and dmesg for Xid; CUDA_LAUNCH_BLOCKING=1 shows "
            "an earlier failure."
        ),
        command="echo $LD_LIBRARY_PATH; pip list | grep -i cublas; nvidia-smi",
        source="cuBLAS, as torch prints it",
        fires=(
            "RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx( "
            "handle, opa, opb, m, n, k`"
        ),
        spares=("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ),
    Signature(
        id="cudnn-failed",
        component="cuda",
        role="cause",
        pattern=r"cuDNN error: (?P<status>CUDNN_STATUS_\w{1,60})",
        needle="cuDNN error: CUDNN_STATUS_",
        title="cuDNN failed: {status}",
        cause=(
            "The GPU's library for neural networks refused or failed a call: another cuDNN is loaded "
            "than torch was built for, or the GPU is full."
        ),
        fix=(
            "Unset LD_LIBRARY_PATH so that torch's own cuDNN is loaded, reinstall nvidia-cudnn at "
            "torch's version, and check free GPU memory."
        ),
        command="echo $LD_LIBRARY_PATH; pip list | grep -i cudnn; nvidia-smi",
        source="cuDNN, as torch prints it",
        fires="RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        spares="INFO cuDNN version: CUDNN_STATUS is fine",
    ),
    Signature(
        id="cuda-peer",
        component="cuda",
        role="cause",
        pattern=(
            "CUDA error: (?:peer access is not supported between these two devices|peer mapping "
            "resources exhausted|mapping of buffer object failed)"
        ),
        needle="CUDA error: ",
        title="The GPUs cannot use each other's memory directly",
        cause=(
            "Peer access between these GPUs is not possible here (PCIe layout, IOMMU/ACS, a virtual "
            "machine), and a kernel used it."
        ),
        fix="Start vLLM with --disable-custom-all-reduce and set NCCL_P2P_DISABLE=1.",
        command="nvidia-smi topo -p2p r",
        source="CUDA cudaErrorPeerAccessUnsupported",
        fires="RuntimeError: CUDA error: peer access is not supported between these two devices",
        spares="INFO CUDA peer access is supported between these two devices",
    ),
    Signature(
        id="cuda-kernel-image",
        component="cuda",
        role="cause",
        pattern=(
            "CUDA error: (?:device kernel image is invalid|named symbol not found|invalid device function)"
        ),
        needle="CUDA error: ",
        title="A package's GPU code does not fit this GPU or driver",
        cause="A compiled extension has no valid code for this GPU, or needs a newer driver.",
        fix=("Install a build of the package for this GPU and CUDA, and check the driver's version."),
        command="nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv",
        source="CUDA cudaErrorInvalidKernelImage",
        fires="RuntimeError: CUDA error: invalid device function",
        spares="INFO CUDA device function found",
    ),
    Signature(
        id="cuda-illegal-instruction",
        component="cuda",
        role="cause",
        pattern=(
            "CUDA error: (?P<what>an illegal instruction was encountered|invalid program "
            "counter|invalid resource handle|initialization error|operation not supported|invalid "
            "argument|invalid configuration argument|too many resources requested for launch|misaligned "
            "address|unspecified launch failure)"
        ),
        needle="CUDA error: ",
        title="A CUDA call failed: {what}",
        cause=(
            "A kernel or a call of CUDA failed: {what}. CUDA reports it late, so the frame may be "
            "another one."
        ),
        fix=("Run once with CUDA_LAUNCH_BLOCKING=1, which shows the call, and look at dmesg for Xid lines."),
        command="dmesg -T | grep -i xid",
        source="CUDA error strings, as torch prints them",
        fires="torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
        spares="RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
)
