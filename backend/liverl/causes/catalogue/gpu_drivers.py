"""Signatures of NVIDIA's driver, NVML, switches and container runtime."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="libcuda-missing",
        component="cuda",
        role="cause",
        pattern=(
            "(?:(?:Import|OS)Error|error while loading shared libraries): "
            r"(?P<library>libcuda\.so[\d.]{0,12}): cannot open shared object file"
        ),
        needle=": cannot open shared object file",
        title="The NVIDIA driver's library {library} is not visible here",
        cause=(
            "{library} comes with the driver: the host has none, or the container was started "
            "without its GPU runtime."
        ),
        fix=(
            "Start the container with --gpus all (Kubernetes: runtimeClassName nvidia and a GPU "
            "limit), or install the driver."
        ),
        command="nvidia-smi; ldconfig -p | grep libcuda",
        source="glibc dl-load",
        fires=("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"),
        spares=("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ),
    Signature(
        id="nvml-mismatch",
        component="cuda",
        role="cause",
        pattern="Driver/library version mismatch",
        needle="Driver/library version mismatch",
        title="The NVIDIA driver was updated, and the old one still runs",
        cause=(
            "The kernel's NVIDIA module and the libraries have different versions: the driver was "
            "updated without a restart."
        ),
        fix=("Restart the host, or unload and load the nvidia modules; restart containers afterwards."),
        command="cat /proc/driver/nvidia/version; nvidia-smi",
        source="NVML",
        fires="Failed to initialize NVML: Driver/library version mismatch",
        spares="INFO NVML: driver and library version 575.57 match",
    ),
    Signature(
        id="nvml-unknown",
        component="cuda",
        role="cause",
        pattern=r"(?:Failed to initialize NVML|NVMLError\w{0,40}): Unknown Error",
        needle=": Unknown Error",
        title="The container has lost its GPUs (NVML: Unknown Error)",
        cause=(
            "The container's access to the GPUs was taken away, often by systemctl daemon-reload on "
            "the host with cgroup v2."
        ),
        fix=(
            "Restart the container; give it the devices explicitly (--device /dev/nvidia0 ...), or "
            "use the cgroupfs driver or CDI."
        ),
        command="nvidia-smi; ls -l /dev/nvidia*",
        source="NVML; NVIDIA container toolkit issue 48",
        fires="Failed to initialize NVML: Unknown Error",
        spares="INFO NVML: initialized, no Unknown Error",
    ),
    *family(
        Signature(
            id="gpu-lost",
            component="cuda",
            role="cause",
            pattern="Unable to determine the device handle for (?:GPU|gpu)",
            needle="Unable to determine the device handle for ",
            title="A GPU is lost: the driver cannot reach it any more",
            cause="The GPU stopped answering: hardware, power, PCIe, or its firmware.",
            fix=(
                "Leave it out (CUDA_VISIBLE_DEVICES), have the host restarted and the GPU checked; dmesg "
                "has its Xid."
            ),
            command="dmesg -T | grep -iE 'xid|nvrm'; nvidia-smi -L",
            source="nvidia-smi, NVML",
            fires="Unable to determine the device handle for GPU0000:41:00.0: Unknown Error",
            spares="INFO the device handle for GPU0000:41:00.0 is known",
        ),
        Text(
            id="gpu-is-lost",
            pattern="GPU is lost",
            needle="GPU is lost",
            fires="nvidia-smi: GPU is lost.  Reboot the system to recover this GPU",
            spares="INFO GPU is listed, nothing lost",
        ),
        Text(
            id="gpu-is-lost-nvml",
            pattern="NVMLError_GpuIsLost",
            needle="NVMLError_GpuIsLost",
            fires="pynvml.NVMLError_GpuIsLost: GPU was lost",
            spares="pynvml.NVMLError_NotSupported: Not Supported by this NVMLError",
        ),
    ),
    Signature(
        id="gpu-off-bus",
        component="cuda",
        role="cause",
        pattern=(r"NVRM: (?:[^\n]{0,80}GPU has )?fallen off the bus and is not responding to commands"),
        needle="fallen off the bus and is not responding to commands",
        title="A GPU has fallen off the bus: the driver cannot reach it",
        cause="The GPU does not answer on PCIe: hardware, power or a loose card.",
        fix=("Leave it out (CUDA_VISIBLE_DEVICES) and have the host powered off and the GPU checked."),
        command="dmesg -T | grep -iE 'xid|nvrm'; nvidia-smi -L",
        source="NVIDIA kernel module",
        fires="[ 1843.308145] NVRM: fallen off the bus and is not responding to commands.",
        spares="[ 1843.439669] NVRM: loading NVIDIA UNIX Open Kernel Module, bus 0000:b3",
    ),
    Signature(
        id="nvrm-init",
        component="cuda",
        role="cause",
        pattern=r"NVRM: (?:GPU (?P<bus>[\w:.]{1,40}): )?RmInitAdapter failed",
        needle="RmInitAdapter failed",
        title="The driver could not initialize a GPU",
        cause=(
            "The GPU or its firmware does not start: hardware, power, or a driver that does not know "
            "this GPU."
        ),
        fix=(
            "Leave it out (CUDA_VISIBLE_DEVICES); have the host powered off and the GPU checked, or "
            "update the driver."
        ),
        command="dmesg -T | grep -i nvrm",
        source="NVIDIA kernel module",
        fires="[  12.345678] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1409)",
        spares="[  12.345678] NVRM: loading the module, no adapter failed",
    ),
    Signature(
        id="nvrm-mismatch",
        component="cuda",
        role="cause",
        pattern=r"NVRM: API mismatch: the client has the version (?P<client>[\d.]{1,20})",
        needle="NVRM: API mismatch: the client has the version ",
        title="The driver was updated to {client}, and an older kernel module still runs",
        cause=(
            "Programs load the NVIDIA libraries {client}, and the kernel has another version of the module."
        ),
        fix="Restart the host, or unload and load the nvidia modules.",
        command="cat /proc/driver/nvidia/version; nvidia-smi",
        source="NVIDIA kernel module",
        fires=(
            "NVRM: API mismatch: the client has the version 535.161.08, but NVRM: this kernel module "
            "has the version 535.104.05."
        ),
        spares="NVRM: API of the client has the version 535.161.08",
    ),
    Signature(
        id="nvswitch-sxid",
        component="cuda",
        role="cause",
        pattern=r"SXid \(PCI:(?P<bus>[\w:.]{1,40})\): (?P<sxid>\d{1,6}), (?:Fatal|Non-fatal)",
        needle="SXid (PCI:",
        title="An NVSwitch reports error SXid {sxid} ({bus})",
        cause="A link or switch between the GPUs of this host failed.",
        fix=("Have the host checked; restart nvidia-fabricmanager and the host before it is used again."),
        command="dmesg -T | grep -i sxid; systemctl status nvidia-fabricmanager",
        source="NVIDIA fabric manager user guide",
        fires="nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        spares="nvidia-nvswitch3: open (PCI:0000:c1:00.0), link 30 up, no SXid, not Fatal",
    ),
    Signature(
        id="container-cli-failed",
        component="cuda",
        role="cause",
        pattern=(
            r"nvidia-container-cli: (?P<why>initialization error: (?!(?:nvml error: )?(?:driver(?:/library"
            r"| (?:not loaded|error|rpc error))|load library failed))[^\n]{1,160}"
            r"|(?:device|detection) error: [^\n]{1,160})"
        ),
        needle="nvidia-container-cli: ",
        title="The container could not get the GPUs of this host",
        cause="The NVIDIA container runtime failed: {why}",
        fix=(
            "Check nvidia-smi on the host: its driver must be loaded and the named GPU must exist; "
            "then start the container again."
        ),
        command="nvidia-smi; lsmod | grep nvidia",
        source="libnvidia-container",
        fires="nvidia-container-cli: device error: unknown device id: 4",
        spares="nvidia-container-cli: version 1.17, no initialization error:",
    ),
)
