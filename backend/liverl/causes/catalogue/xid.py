"""Signatures of errors that NVIDIA's driver reports to the kernel's log as Xid numbers."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="xid-program",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): (?P<xid>13|31|43|68|109),",
        needle="NVRM: Xid (PCI:",
        title="Xid {xid}: the driver stopped a program on GPU {bus}",
        cause=(
            "A program's kernel did something invalid (13, 31: it used a wrong address), or was "
            "ended by the driver (43, 109); the hardware is seldom at fault."
        ),
        fix=(
            "Read the program's own log for the CUDA error; CUDA_LAUNCH_BLOCKING=1 shows the kernel. "
            "If several programs fail only on this GPU, have it checked."
        ),
        command="nvidia-smi",
        source="NVIDIA XID documentation",
        fires=(
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=4102, name=python3, Ch 00000008, intr 00000000. MMU Fault"
        ),
        spares="NVRM: Xid (PCI:0000:3b:00): 131, pid=4102, Fault",
    ),
    Signature(
        id="xid-after",
        component="cuda",
        role="cause",
        pattern=(
            r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): 45,[^\n]{0,120}caused by previous Xid "
            r"(?P<before>\d{1,4})"
        ),
        needle="caused by previous Xid ",
        title="Xid 45 on GPU {bus}: the driver ended its work because of Xid {before}",
        cause=("The driver cleaned up what ran on GPU {bus} after Xid {before}, which is the failure."),
        fix=(
            "Look for Xid {before} before this line (dmesg -T), and have the GPU or its links "
            "checked as that number says."
        ),
        command="dmesg -T | grep -i xid",
        source="NVIDIA XID documentation",
        fires=(
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by "
            "previous Xid 149"
        ),
        spares="NVRM: Xid (PCI:0000:dc:00): 13, pid=45, caused by a program",
    ),
    Signature(
        id="xid-cleanup",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): 45,(?![^\n]{0,120}caused by previous)",
        needle="NVRM: Xid (PCI:",
        title="Xid 45: the driver ended the work of a program on GPU {bus}",
        cause=(
            "The driver cleaned up after a program that ended or was killed, or after another error "
            "of this GPU."
        ),
        fix="Look for another Xid before it (dmesg -T), and for what ended the program.",
        command="dmesg -T | grep -i xid",
        source="NVIDIA XID documentation",
        fires="NVRM: Xid (PCI:0000:3b:00): 45, pid=4102, name=python3, Ch 00000008",
        spares=(
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by "
            "previous Xid 149"
        ),
    ),
    Signature(
        id="xid-memory",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): (?P<xid>48|63|64|92|94|95|140|171|172),",
        needle="NVRM: Xid (PCI:",
        title="Xid {xid}: the memory of GPU {bus} has errors",
        cause=(
            "The GPU found errors in its memory that it could not correct, or is replacing rows of "
            "it (63, 64)."
        ),
        fix=(
            "Leave GPU {bus} out (CUDA_VISIBLE_DEVICES), reset it or restart the host, and look at "
            "nvidia-smi -q -d ECC,ROW_REMAPPER; have it replaced if errors come back."
        ),
        command="nvidia-smi -q -d ECC,ROW_REMAPPER",
        source="NVIDIA XID documentation",
        fires=("NVRM: Xid (PCI:0000:3b:00): 94, pid=4102, name=python3, Contained: CE User Channel"),
        spares="NVRM: Xid (PCI:0000:3b:00): 13, pid=94, memory",
    ),
    Signature(
        id="xid-bus",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): 79,",
        needle="NVRM: Xid (PCI:",
        title="Xid 79: GPU {bus} has fallen off the bus",
        cause="The GPU does not answer on PCIe: power, heat, a loose card, or broken hardware.",
        fix=("Leave GPU {bus} out (CUDA_VISIBLE_DEVICES), have the host powered off and the GPU checked."),
        command="dmesg -T | grep -i nvrm; nvidia-smi -L",
        source="NVIDIA XID documentation",
        fires=(
            "[1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid=4102, name=python3, GPU has fallen off the bus."
        ),
        spares="[1234.5] NVRM: Xid (PCI:0000:3b:00): 13, pid=79",
    ),
    Signature(
        id="xid-link",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): (?P<xid>74|14[4-9]|150),",
        needle="NVRM: Xid (PCI:",
        title="Xid {xid}: an NVLink of GPU {bus} failed",
        cause="A link between this GPU and another one or a switch has errors.",
        fix=(
            "Look at nvidia-smi nvlink -e and topo -m; restart nvidia-fabricmanager and the host, "
            "and have GPU and switch checked."
        ),
        command="nvidia-smi nvlink -e; nvidia-smi topo -m",
        source="NVIDIA XID documentation",
        fires=(
            "NVRM: Xid (PCI:0000:3b:00): 74, pid=4102, name=python3, NVLink: fatal error detected on link 6"
        ),
        spares="NVRM: Xid (PCI:0000:3b:00): 13, pid=74, NVLink",
    ),
    Signature(
        id="xid-firmware",
        component="cuda",
        role="cause",
        pattern=r"NVRM: Xid \(PCI:(?P<bus>[\w:.]{1,40})\): (?P<xid>38|61|62|119|120|122|143|154),",
        needle="NVRM: Xid (PCI:",
        title="Xid {xid}: the driver or firmware of GPU {bus} does not answer",
        cause=(
            "The firmware of the GPU (GSP, PMU) or the driver failed, or the driver asks for a reset (154)."
        ),
        fix=(
            "Reset the GPU (nvidia-smi --gpu-reset) or restart the host; update the driver if it "
            "comes back (119, 120)."
        ),
        command="nvidia-smi; cat /proc/driver/nvidia/version",
        source="NVIDIA XID documentation",
        fires=(
            "NVRM: Xid (PCI:0000:3b:00): 119, pid=4102, name=python3, Timeout after 6s of waiting "
            "for RPC response from GPU3 GSP!"
        ),
        spares="NVRM: Xid (PCI:0000:3b:00): 13, pid=119, Timeout",
    ),
)
