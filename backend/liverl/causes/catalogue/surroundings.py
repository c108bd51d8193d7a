"""Signatures of trainers, packages, pods and hosts that do not fit."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="bitsandbytes-library",
        component="python",
        role="cause",
        pattern=r"'NoneType' object has no attribute 'c(?:de)?quantize_\w{1,60}'",
        needle="'NoneType' object has no attribute 'c",
        title="bitsandbytes was loaded without its CUDA library",
        cause="It found no library for this version of CUDA when it was imported.",
        fix=("Run python -m bitsandbytes, which says what it misses; install a newer bitsandbytes."),
        command="python -m bitsandbytes",
        source="bitsandbytes/functional.py",
        fires="AttributeError: 'NoneType' object has no attribute 'cdequantize_blockwise_fp32'",
        spares="AttributeError: 'NoneType' object has no attribute 'cuda'",
    ),
    Signature(
        id="meta-value",
        component="torch",
        role="cause",
        pattern="is on the meta device, we need a `value` to put in on",
        needle="is on the meta device, we need a `value` to put in on",
        title="A weight was never loaded (it has no data)",
        cause=(
            "The checkpoint lacks a weight of the model, or the model is loaded empty (ZeRO-3, "
            "device_map) by code that does not expect it."
        ),
        fix=(
            "Check that the checkpoint is complete and of this architecture; load without device_map "
            "or low_cpu_mem_usage."
        ),
        source="accelerate/utils/modeling.py",
        fires="ValueError: weight is on the meta device, we need a `value` to put in on 0.",
        spares="INFO weight is on the meta device",
    ),
    Signature(
        id="hf-arguments",
        component="python",
        role="cause",
        pattern=(r"Some specified arguments are not used by the HfArgumentParser: (?P<names>[^\n]{1,160})"),
        needle="Some specified arguments are not used by the HfArgumentParser: ",
        title="The script does not know some of its arguments",
        cause="{names}: misspelt, or of another version of transformers or trl.",
        fix="Compare them with --help of the installed version.",
        source="transformers/hf_argparser.py",
        fires=("ValueError: Some specified arguments are not used by the HfArgumentParser: ['--foo']"),
        spares="INFO all arguments are used by the HfArgumentParser",
    ),
    Signature(
        id="checkpoint-none",
        component="python",
        role="cause",
        pattern=r"Can't find a valid checkpoint at (?P<path>[^\s)]{1,200})",
        needle="Can't find a valid checkpoint at ",
        title="There is no whole checkpoint in {path}",
        cause="The folder is missing, empty, or its save was interrupted.",
        fix="Resume from the checkpoint before it, or start without resume_from_checkpoint.",
        source="transformers/trainer.py",
        fires="ValueError: Can't find a valid checkpoint at /ckpt/checkpoint-100",
        spares="INFO found a valid checkpoint at /ckpt",
    ),
    Signature(
        id="optimizer-empty",
        component="torch",
        role="cause",
        pattern="optimizer got an empty parameter list",
        needle="optimizer got an empty parameter list",
        title="Nothing is trainable: the optimizer got no parameters",
        cause=("All parameters are frozen, or ZeRO-3 or FSDP moved them before the optimizer was made."),
        fix=(
            "Check requires_grad, the LoRA target modules, and the order of wrapping and making the "
            "optimizer."
        ),
        source="torch/optim/optimizer.py",
        fires="ValueError: optimizer got an empty parameter list",
        spares="INFO optimizer got 12 parameters",
    ),
    Signature(
        id="unscale-fp16",
        component="torch",
        role="cause",
        pattern="Attempting to unscale FP16 gradients",
        needle="Attempting to unscale FP16 gradients",
        title="The trained weights are in float16, and mixed precision needs float32",
        cause="With fp16=True the weights must be float32: only computation is in float16.",
        fix="Load the model in float32 (or train with bf16=True).",
        source="torch/amp/grad_scaler.py",
        fires="ValueError: Attempting to unscale FP16 gradients.",
        spares="INFO gradients are unscaled",
    ),
    Signature(
        id="scaler-no-grads",
        component="torch",
        role="cause",
        pattern="No inf checks were recorded for this optimizer",
        needle="No inf checks were recorded for this optimizer",
        title="A step was made without gradients (mixed precision)",
        cause=(
            "No parameter of the optimizer got a gradient: all frozen, or the loss does not depend on them."
        ),
        fix="Check requires_grad and that the loss is computed from the model's output.",
        source="torch/amp/grad_scaler.py",
        fires="AssertionError: No inf checks were recorded for this optimizer.",
        spares="INFO inf checks were recorded",
    ),
    Signature(
        id="remote-code-name",
        component="python",
        role="cause",
        pattern=r"No module named 'transformers_modules\.(?P<name>[^'\n]{1,100})'",
        needle="No module named 'transformers_modules.",
        title="The model's own code could not be loaded as a Python module",
        cause=(
            "transformers makes a module of the last part of the model's path ({name}); a dot in it, "
            "or a cache that other ranks still write, breaks it."
        ),
        fix=("Rename the folder so that it has no dot, and delete ~/.cache/huggingface/modules."),
        source="transformers/dynamic_module_utils.py",
        fires="ModuleNotFoundError: No module named 'transformers_modules.Model-v1'",
        spares="ModuleNotFoundError: No module named 'transformers.models.x'",
    ),
    Signature(
        id="cudnn-versions",
        component="cuda",
        role="cause",
        pattern=(
            r"cuDNN version incompatibility: PyTorch was compiled\s{1,3}against \((?P<built>[\d, "
            r"]{3,16})\) but found runtime version \((?P<found>[\d, ]{3,16})\)"
        ),
        needle="cuDNN version incompatibility: PyTorch was compiled",
        title="cuDNN is version {found}, and torch was built for {built}",
        cause="Another copy of cuDNN is found first, usually through LD_LIBRARY_PATH.",
        fix=("Start with LD_LIBRARY_PATH unset, or install the nvidia-cudnn package that torch pins."),
        command="echo $LD_LIBRARY_PATH; pip list | grep cudnn",
        source="torch/backends/cudnn",
        fires=(
            "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) "
            "but found runtime version (8, 9, 2)."
        ),
        spares="INFO cuDNN runtime version (9, 1, 0)",
    ),
    *family(
        Signature(
            id="cudnn-library",
            component="cuda",
            role="cause",
            pattern=r"Could not load library libcudnn\w{0,40}\.so",
            needle="Could not load library libcudnn",
            title="cuDNN's libraries are not found, or belong to another version",
            cause="torch found a part of cuDNN and misses the rest.",
            fix=("Reinstall the nvidia-cudnn package that torch pins, and start with LD_LIBRARY_PATH unset."),
            command="echo $LD_LIBRARY_PATH; pip list | grep cudnn",
            source="cuDNN",
            fires=(
                "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot "
                "open shared object file"
            ),
            spares="INFO loaded library libcudnn.so.9",
        ),
        Text(
            id="cudnn-library-other",
            pattern=r"Unable to load any of \{libcudnn",
            needle="Unable to load any of {libcudnn",
            fires="Unable to load any of {libcudnn_engines_precompiled.so.9.1.0, libcudnn_engines_precompiled.so.9}",
            spares="INFO loaded library libcudnn.so.9",
        ),
    ),
    Signature(
        id="pip-no-version",
        component="python",
        role="cause",
        pattern=r"Could not find a version that satisfies the requirement (?P<what>[^\s(]{1,100})",
        needle="Could not find a version that satisfies the requirement ",
        title="pip found no {what} for this Python and platform",
        cause="The index has no such version, or none for this Python, or it cannot be reached.",
        fix=(
            "Check python --version, the name and version, and --index-url or --extra-index-url "
            "(torch's CUDA builds have their own)."
        ),
        source="pip",
        fires=(
            "ERROR: Could not find a version that satisfies the requirement apex==0.9.1 (from "
            "versions: 2.0.0)"
        ),
        spares="INFO found a version that satisfies the requirement",
    ),
    Signature(
        id="compiler-no-memory",
        component="host",
        role="cause",
        pattern=r"fatal error: Killed signal terminated program (?P<program>\w{1,20})",
        needle="fatal error: Killed signal terminated program ",
        title="A compiler was killed: the host's memory is used up",
        cause="{program} ran too often at once, or needed too much memory.",
        fix="Set MAX_JOBS=4 (fewer compilers at once), or give the build more memory.",
        command="free -g; dmesg -T | grep -i 'killed process'",
        source="gcc",
        fires="c++: fatal error: Killed signal terminated program cc1plus",
        spares="INFO terminated program cc1plus",
    ),
    *family(
        Signature(
            id="nvml-missing",
            component="cuda",
            role="cause",
            where="exception",
            pattern="NVML Shared Library Not Found",
            needle="NVML Shared Library Not Found",
            title="There is no NVIDIA driver in this environment",
            cause=(
                "libnvidia-ml, which comes with the driver, is not found or does not work: no driver, or "
                "a container without its GPU runtime."
            ),
            fix=(
                "Check nvidia-smi here; start the container with --gpus all, and load the driver on the host."
            ),
            command="nvidia-smi",
            source="pynvml",
            fires="pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
            spares="INFO NVML: the shared library was found, and no NVMLError_Unknown",
        ),
        Text(
            id="nvml-missing-other",
            pattern="NVMLError_DriverNotLoaded",
            needle="NVMLError_DriverNotLoaded",
            fires="pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded",
            spares="INFO NVML: the shared library was found, and no NVMLError_Unknown",
        ),
    ),
    Signature(
        id="gpu-device-missing",
        component="host",
        role="cause",
        pattern=(
            "error gathering device information while adding custom device "
            r"\"(?P<device>/dev/\w{1,40})\""
        ),
        needle='error gathering device information while adding custom device "/dev/',
        title="The device {device} does not exist on the host",
        cause=(
            "A container asks for {device}, and the driver has not made it: no driver, or a GPU that is lost."
        ),
        fix="Check ls -l /dev/nvidia* and nvidia-smi on the host.",
        command="ls -l /dev/nvidia*; nvidia-smi",
        source="docker",
        fires=(
            "Error response from daemon: error gathering device information while adding custom "
            'device "/dev/nvidia0": no such file or directory'
        ),
        spares='INFO adding custom device "/dev/nvidia0"',
    ),
    Signature(
        id="pcie-fatal",
        component="host",
        role="cause",
        pattern=r"AER: (?:Multiple )?Uncorrect(?:ed|able) \(?Fatal\)? error",
        needle="Uncorrect",
        title="PCIe reports a fatal error",
        cause="The connection to a device broke: hardware, power, or a loose card.",
        fix=("See which device dmesg names (lspci -s), leave that GPU out, and have the host checked."),
        command="dmesg -T | grep -i aer",
        source="Linux AER",
        fires="pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
        spares="pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
    ),
    Signature(
        id="kernel-segfault",
        component="host",
        role="consequence",
        pattern=(
            r"(?P<program>[\w.:-]{1,40})\[(?P<pid>\d{1,10})\]: segfault at [0-9a-f]{1,16} ip \S{1,20} "
            r"sp \S{1,20} error \d{1,3}(?: in (?P<library>[\w.+-]{1,80}))?"
        ),
        needle="]: segfault at ",
        title="{program} (pid {pid}) crashed: segmentation fault",
        fix=(
            "The library that the line names is where it crashed: reinstall it at the version that "
            "fits, and set PYTHONFAULTHANDLER=1 to see the Python frames."
        ),
        tells=True,
        source="Linux kernel",
        fires=("python[1234]: segfault at 0 ip 00007f12 sp 00007ffc error 4 in libcuda.so.550.54[7f00]"),
        spares="python[1234]: no segfault",
    ),
)
