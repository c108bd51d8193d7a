"""Signatures of the host's memory, and shared memory."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="memory-error",
        component="host",
        role="cause",
        where="exception",
        pattern=r"^MemoryError\b",
        needle="MemoryError",
        title="The host's memory is used up, or the limit of this process (MemoryError)",
        cause=(
            "Python could not get memory from the host: it is used up, or a limit (ulimit -v, the "
            "container's) is reached."
        ),
        fix=(
            "Look at free -g and at the limits, use fewer workers (harbor_runtime.num_workers, "
            "verl.agent_workers) or smaller batches, or give the run more memory."
        ),
        command="free -g; ulimit -v",
        source="recordings/cases/43-made-memoryerror.log",
        fires="MemoryError",
        spares="INFO MemoryError is handled by retrying with half of the batch",
        recorded=True,
    ),
    Signature(
        id="cannot-allocate-memory",
        component="host",
        role="cause",
        pattern=r"\[Errno 12\] Cannot allocate memory",
        needle="[Errno 12] Cannot allocate memory",
        title="The host's memory is used up (cannot allocate memory)",
        cause=(
            "The kernel refused memory to a process: the host's memory, its overcommit limit or a limit "
            "of the process is reached."
        ),
        fix=(
            "Look at free -g, use fewer workers (harbor_runtime.num_workers, verl.agent_workers), or "
            "give the run more memory."
        ),
        command="free -g",
        source="errno 12 ENOMEM, as Python prints it",
        fires="OSError: [Errno 12] Cannot allocate memory",
        spares="RuntimeError: CUDA error: out of memory",
    ),
    Signature(
        id="cpu-allocator",
        component="torch",
        role="cause",
        pattern=(
            r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)[^\n]{0,60}you tried to "
            r"allocate (?P<bytes>\d{1,30}) bytes"
        ),
        needle="DefaultCPUAllocator",
        title="The host's memory is used up: torch asked for {bytes} bytes",
        cause="torch could not get {bytes} bytes of host memory (not of the GPU).",
        fix=(
            "Look at free -g; use smaller batches, fewer workers, or more memory. With offload "
            "(training.actor_offload, training.ref_offload) weights lie in host memory."
        ),
        command="free -g",
        source="torch c10/core/impl/alloc_cpu.cpp",
        fires=(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 17179869184 bytes. Error code 12 (Cannot allocate "
            "memory)"
        ),
        spares="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 GiB.",
    ),
    Signature(
        id="kernel-oom",
        component="host",
        role="cause",
        pattern=r"Out of memory: Killed process (?P<pid>\d{1,10}) \((?P<name>[^)\n]{1,60})\)",
        needle="Out of memory: Killed process",
        title="The kernel killed {name} (pid {pid}): the host is out of memory",
        cause="The host ran out of memory, and the kernel killed process {pid} ({name}).",
        fix=(
            "Use fewer workers (harbor_runtime.num_workers, verl.agent_workers), less offload "
            "(training.actor_offload, training.ref_offload), or a host with more memory."
        ),
        command="free -g",
        source="Linux mm/oom_kill.c",
        fires=(
            "[185531.203213] Out of memory: Killed process 2101 (ray::TaskRunner) total-vm:812345678kB, "
            "anon-rss:641852928kB, file-rss:0kB, shmem-rss:1024kB, UID:0 pgtables:1284560kB "
            "oom_score_adj:0"
        ),
        spares="Memory cgroup out of memory: Killed process 2101 (python3) total-vm:1kB",
    ),
    Signature(
        id="cgroup-oom",
        component="host",
        role="cause",
        pattern=r"Memory cgroup out of memory: Killed process (?P<pid>\d{1,10}) \((?P<name>[^)\n]{1,60})\)",
        needle="Memory cgroup out of memory: Killed process",
        title="The kernel killed {name} (pid {pid}): its memory limit is reached",
        cause=(
            "The container, pod or Slurm step reached its memory limit, and the kernel killed process "
            "{pid} ({name})."
        ),
        fix=(
            "Raise that limit (--mem of Slurm, memory of the container), or use fewer workers "
            "(harbor_runtime.num_workers, verl.agent_workers)."
        ),
        source="Linux mm/oom_kill.c",
        fires=(
            "[91231.1] Memory cgroup out of memory: Killed process 31999 (python3) total-vm:78211300kB, "
            "anon-rss:33511424kB, file-rss:71680kB, shmem-rss:0kB, UID:1000 pgtables:72148kB "
            "oom_score_adj:1000"
        ),
        spares="[91231.1] Out of memory: Killed process 31999 (python3) total-vm:78211300kB",
    ),
    Signature(
        id="shm-too-small",
        component="torch",
        role="cause",
        pattern="It is possible that dataloader's workers are out of shared memory",
        needle="dataloader's workers are out of shared memory",
        title="Shared memory (/dev/shm) is too small",
        cause="A data loader's worker got a bus error because /dev/shm is full or too small.",
        fix=(
            "Start the container with --shm-size=16g or --ipc=host, and remove leftovers in /dev/shm "
            "whose owners are dead."
        ),
        command="df -h /dev/shm",
        source="torch/utils/data/_utils/signal_handling.py",
        fires=(
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory. Please try to raise your shared memory "
            "limit."
        ),
        spares="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
    ),
    Signature(
        id="dataloader-killed",
        component="torch",
        role="consequence",
        pattern=(
            r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>[\d, ]{1,80})\) (?:is killed by signal: "
            "(?!Bus)|exited unexpectedly)"
        ),
        needle="DataLoader worker (pid",
        title="A data loader's worker process (pid {pid}) died",
        fix=(
            "Look for an out-of-memory kill in dmesg and in the cgroup's memory.events; use fewer loader "
            "workers."
        ),
        source="torch/utils/data/dataloader.py",
        fires="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        spares=(
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory."
        ),
    ),
    Signature(
        id="shm-object",
        component="torch",
        role="cause",
        pattern=r"unable to open shared memory object <(?P<name>[^>\n]{1,100})> in read-write mode",
        needle="unable to open shared memory object",
        title="A shared memory object could not be opened: /dev/shm or open files",
        cause=(
            "torch could not open {name} in /dev/shm: it is full, or too many files are open, or it was "
            "removed while in use."
        ),
        fix="Look at df -h /dev/shm and ulimit -n; start the container with --shm-size=16g or --ipc=host.",
        command="df -h /dev/shm; ulimit -n",
        source="torch aten/src/ATen/MapAllocator.cpp",
        fires=(
            "RuntimeError: unable to open shared memory object </torch_4102_2901_0> in read-write mode: "
            "Too many open files (24)"
        ),
        spares="RuntimeError: unable to mmap 64 bytes from file </torch_1>: Cannot allocate memory (12)",
    ),
    Signature(
        id="bus-error",
        component="host",
        role="cause",
        pattern=r"(?:^|\n)(?:Fatal Python error: |\S{0,80}: line \d{1,6}: {1,20}\d{1,10} )?Bus error\b",
        needle="Bus error",
        title="A process ended with a bus error: /dev/shm or a disk is probably full",
        cause=(
            "A process touched memory that has no page behind it: a file in /dev/shm or on a full disk, "
            "or one that was cut off while mapped."
        ),
        fix=(
            "Look at df -h /dev/shm. Give the container --shm-size=16g or --ipc=host; remove leftovers "
            "only after the processes that own them have ended."
        ),
        command="df -h /dev/shm",
        source="CPython Modules/faulthandler.c; bash",
        fires="Fatal Python error: Bus error",
        spares="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error.",
    ),
    Signature(
        id="shm-worker-bus-error",
        component="torch",
        role="cause",
        pattern=(
            r"Unexpected bus error encountered in worker\. This might be caused by insufficient shared "
            "memory"
        ),
        needle="Unexpected bus error encountered in worker",
        title="Shared memory (/dev/shm) is too small",
        cause="A data loader's worker got a bus error because /dev/shm is full or too small.",
        fix=(
            "Start the container with --shm-size=16g or --ipc=host, and remove leftovers in /dev/shm "
            "whose owners are dead."
        ),
        command="df -h /dev/shm",
        source="torch/csrc/DataLoader.cpp",
        fires=(
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
            "shared memory (shm)."
        ),
        spares="ERROR: Unexpected segmentation fault encountered in worker.",
    ),
)
