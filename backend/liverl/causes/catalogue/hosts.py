"""Signatures of the host: memory, disk, files, threads, ports."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="disk-full-path",
        component="host",
        role="cause",
        pattern=r"\[Errno 28\] No space left on device: '(?P<path>[^'\n]{1,300})'",
        needle="[Errno 28] No space left on device",
        title="Disk full: no space left for {path}",
        cause="The file system that holds {path} is full.",
        fix=(
            "Free space there, see with df -h which file system it is and how much is free, and save "
            "fewer checkpoints (training.save_freq), then restart."
        ),
        command="df -h '{path}'",
        source="errno 28 ENOSPC, as Python prints it with a file name",
        fires="OSError: [Errno 28] No space left on device: '/tmp/full/a'",
        spares="OSError: [Errno 28] No space left on device",
    ),
    Signature(
        id="disk-full",
        component="host",
        role="cause",
        pattern=r"\[Errno 28\] No space left on device(?!: ')",
        needle="[Errno 28] No space left on device",
        title="Disk full: no space left on device",
        cause="A write failed because a file system is full; the error does not say which path it was.",
        fix=(
            "Look which file system is full and how much is free (df -h), free space, save fewer "
            "checkpoints (training.save_freq) or move run.run_root and ray.temp_dir, then restart."
        ),
        command="df -h",
        source="recordings/cases/45-made-disk-full-json.log",
        fires="OSError: [Errno 28] No space left on device",
        spares="OSError: [Errno 122] Disk quota exceeded",
        recorded=True,
    ),
    Signature(
        id="torch-save-failed",
        component="torch",
        role="cause",
        pattern=r"PytorchStreamWriter failed writing file (?P<file>[^\s:]{1,200})",
        needle="PytorchStreamWriter failed writing file",
        title="A checkpoint could not be written: the disk is probably full",
        cause=(
            "torch.save could not write {file}: the disk of the checkpoint directory is full or its "
            "quota is used up."
        ),
        fix=(
            "See how much is free there (df -h, quota -s), delete old checkpoints, keep fewer "
            "(training.save_freq), then restart."
        ),
        command="df -h",
        source="recordings/cases/31-torch-save-disk-full.log",
        fires=(
            "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed "
            "writing file data/228: file write failed"
        ),
        spares="RuntimeError: PytorchStreamReader failed reading file data/228: file read failed",
    ),
    Signature(
        id="torch-load-damaged",
        component="torch",
        role="cause",
        pattern="PytorchStreamReader failed (?:reading zip archive|reading file|locating file)",
        needle="PytorchStreamReader failed",
        title="A checkpoint file is damaged or incomplete",
        cause=(
            "torch.load could not read the file as an archive: it was cut off while it was written or copied."
        ),
        fix="Delete that checkpoint and resume from the one before it, or copy the file again.",
        source="torch caffe2/serialize/inline_container.cc",
        fires=(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
        ),
        spares="RuntimeError: PytorchStreamWriter failed writing file data/228: file write failed",
    ),
    Signature(
        id="quota",
        component="host",
        role="cause",
        pattern=r"\[Errno 122\] Disk quota exceeded",
        needle="[Errno 122] Disk quota exceeded",
        title="Disk quota exceeded",
        cause="The file system has room, but your quota on it is used up.",
        fix=(
            "Delete files of yours there, or move run.run_root and the caches (HF_HOME, "
            "LIVERL_CACHE_DIR) to another file system."
        ),
        command="quota -s",
        source="errno 122 EDQUOT, as Python prints it",
        fires="OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache/huggingface/hub'",
        spares="OSError: [Errno 28] No space left on device",
    ),
    Signature(
        id="stale-file-handle",
        component="host",
        role="cause",
        pattern=r"\[Errno 116\] Stale file handle",
        needle="[Errno 116] Stale file handle",
        title="A file of a network file system was lost (stale file handle)",
        cause=(
            "The file or its directory was deleted or moved on the server, or the export was restarted, "
            "while this process had it open."
        ),
        fix=(
            "Check that the mount answers (ls in its directory), remount it if not, and restart; do not "
            "delete shared caches while runs use them."
        ),
        source="errno 116 ESTALE, as Python prints it",
        fires="OSError: [Errno 116] Stale file handle",
        spares="OSError: [Errno 2] No such file or directory: '/data/handle'",
    ),
    Signature(
        id="io-error",
        component="host",
        role="cause",
        pattern=r"\[Errno 5\] Input/output error",
        needle="[Errno 5] Input/output error",
        title="A disk or mount failed (input/output error)",
        cause="The kernel could not read or write the device or the network mount.",
        fix="Look at dmesg for the device, check the mount, and restart on another file system or host.",
        command="dmesg -T | tail -50",
        source="errno 5 EIO, as Python prints it",
        fires="OSError: [Errno 5] Input/output error: '/mnt/ckpt/global_step_40'",
        spares="OSError: [Errno 15] Block device required",
    ),
    Signature(
        id="read-only-disk",
        component="host",
        role="cause",
        pattern=r"\[Errno 30\] Read-only file system(?:: '(?P<path>[^'\n]{1,300})')",
        needle="[Errno 30] Read-only file system",
        title="{path} is on a read-only file system",
        cause="The file system is mounted read-only, or the kernel made it so after an error of the disk.",
        fix=(
            "Write somewhere else (run.run_root, training data under data.data_dir) or have it mounted "
            "writable."
        ),
        source="errno 30 EROFS, as Python prints it",
        fires="OSError: [Errno 30] Read-only file system: '/models/cache'",
        spares="OSError: [Errno 28] No space left on device: '/models/cache'",
    ),
    Signature(
        id="too-many-open-files",
        component="host",
        role="cause",
        pattern=r"(?<!`)OSError: \[Errno 24\] Too many open files",
        needle="OSError: [Errno 24] Too many open files",
        title="Too many open files: the limit of this process is reached",
        cause="A process or the host has as many files and sockets open as its limit (ulimit -n) allows.",
        fix="Raise the limit in the shell that starts the run, then restart: ulimit -n 65536.",
        command="ulimit -n 65536",
        source="errno 24 EMFILE, as Python prints it",
        fires="OSError: [Errno 24] Too many open files: '/dev/shm/torch_1_2'",
        spares=(
            "WARNING 11-20 23:47:09 [system_utils.py:255] Found ulimit of 20000 and failed to "
            "automatically increase with error current limit exceeds maximum limit. This can cause fd "
            "limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with "
            "ulimit -n"
        ),
    ),
    Signature(
        id="thread-limit-python",
        component="host",
        role="cause",
        pattern="RuntimeError: can't start new thread",
        needle="can't start new thread",
        title="No further thread could be started: a process limit is reached",
        cause=(
            "The user, the container or the Slurm step has as many processes and threads as its limit "
            "(ulimit -u, pids.max) allows."
        ),
        fix=(
            "Raise the limit (ulimit -u, pids of the container), or set OMP_NUM_THREADS=1 and fewer "
            "workers (harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="ulimit -u; cat /sys/fs/cgroup/pids.max",
        source="CPython Modules/_threadmodule.c",
        fires="RuntimeError: can't start new thread",
        spares="RuntimeError: can't start a stopped thread",
    ),
    Signature(
        id="thread-limit-openblas",
        component="host",
        role="cause",
        pattern=r"pthread_create failed[^\n]{0,80}Resource temporarily unavailable",
        needle="pthread_create failed",
        title="No further thread could be started: a process limit is reached",
        cause=(
            "The user, the container or the Slurm step has as many processes and threads as its limit "
            "(ulimit -u, pids.max) allows."
        ),
        fix=(
            "Raise the limit (ulimit -u, pids of the container), or set OMP_NUM_THREADS=1 and fewer "
            "workers (harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="ulimit -u; cat /sys/fs/cgroup/pids.max",
        source="OpenBLAS blas_server.c",
        fires=(
            "OpenBLAS blas_thread_init: pthread_create failed for thread 11 of 64: Resource temporarily "
            "unavailable"
        ),
        spares="OpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 4096 max",
    ),
    Signature(
        id="thread-limit-cpp",
        component="host",
        role="cause",
        pattern=r"(?:what\(\): {1,2}|system_error: )thread: Resource temporarily unavailable",
        needle="thread: Resource temporarily unavailable",
        title="No further thread could be started: a process limit is reached",
        cause=(
            "The user, the container or the Slurm step has as many processes and threads as its limit "
            "(ulimit -u, pids.max) allows."
        ),
        fix=(
            "Raise the limit (ulimit -u, pids of the container), or use fewer workers (ray.num_cpus, "
            "harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="ulimit -u; cat /sys/fs/cgroup/pids.max",
        source="boost::thread in Ray's gcs_server and raylet, ray issue 36936 and others",
        fires=(
            "terminate called after throwing an instance of "
            "'boost::wrapexcept<boost::system::system_error>'\n  what():  thread: Resource temporarily "
            "unavailable [system:11]"
        ),
        spares="BlockingIOError: [Errno 11] Resource temporarily unavailable",
    ),
    Signature(
        id="fork-limit",
        component="host",
        role="cause",
        pattern=r"BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
        needle="BlockingIOError: [Errno 11] Resource temporarily unavailable",
        title="No further process could be started: a process limit is reached",
        cause=(
            "The user, the container or the Slurm step has as many processes and threads as its limit "
            "(ulimit -u, pids.max) allows."
        ),
        fix=(
            "Raise the limit (ulimit -u, pids of the container), or use fewer workers "
            "(harbor_runtime.num_workers, verl.agent_workers)."
        ),
        command="ulimit -u; cat /sys/fs/cgroup/pids.max",
        source="os.fork, as Python prints it",
        fires="BlockingIOError: [Errno 11] Resource temporarily unavailable",
        spares="BlockingIOError: [Errno 115] Operation now in progress",
    ),
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
        spares="torch.OutOfMemoryError: CUDA out of memory.",
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
        id="segfault",
        component="host",
        role="cause",
        pattern=r"(?:Fatal Python error: |line \d{1,6}: {1,20}\d{1,10} )Segmentation fault",
        needle="Segmentation fault",
        title="A process crashed in native code (segmentation fault)",
        cause="A library outside Python (CUDA, NCCL, a compiled extension) used an invalid address.",
        fix=(
            "Read the frames printed below it for the library; the usual reason is a mismatch of "
            "compiled packages (torch, vLLM, flash-attn), so rebuild the environment with pinned "
            "versions."
        ),
        source="CPython Modules/faulthandler.c; bash",
        fires="Fatal Python error: Segmentation fault",
        spares="Fatal Python error: Aborted",
    ),
    Signature(
        id="segfault-torch",
        component="host",
        role="cause",
        pattern="!!!!!!! Segfault encountered !!!!!!!",
        needle="!!!!!!! Segfault encountered !!!!!!!",
        title="A process crashed in native code (segmentation fault)",
        cause="A library outside Python (CUDA, NCCL, a compiled extension) used an invalid address.",
        fix=(
            "Read the frames printed below it for the library; the usual reason is a mismatch of "
            "compiled packages (torch, vLLM, flash-attn), so rebuild the environment with pinned "
            "versions."
        ),
        source="vLLM's worker processes print it",
        fires="!!!!!!! Segfault encountered !!!!!!!",
        spares="*** SIGABRT received at time=1742522829 on cpu 11 ***",
    ),
    Signature(
        id="segfault-ray",
        component="ray",
        role="cause",
        pattern=r"\*\*\* SIGSEGV received at time=\d{1,12}",
        needle="*** SIGSEGV received at time=",
        title="A process crashed in native code (segmentation fault)",
        cause="A library outside Python (CUDA, NCCL, a compiled extension) used an invalid address.",
        fix=(
            "Read the frames printed below it for the library; the usual reason is a mismatch of "
            "compiled packages (torch, vLLM, flash-attn), so rebuild the environment with pinned "
            "versions."
        ),
        source=(
            "Ray's failure handler (absl), as it prints SIGTERM in "
            "recordings/verl_cpu/hang_num_cpus_too_small.stderr.log"
        ),
        fires="*** SIGSEGV received at time=1742522829 on cpu 11 ***",
        spares="*** SIGTERM received at time=1795217993 on cpu 0 ***",
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
    Signature(
        id="port-in-use-address",
        component="host",
        role="cause",
        pattern=(
            r"\[Errno 98\] error while attempting to bind on address \('(?P<host>[^']{1,60})', "
            r"(?P<port>\d{1,5})\S{0,20}\): address already in use"
        ),
        needle="[Errno 98] error while attempting to bind on address",
        title="Port {port} on {host} is taken by another process",
        cause="Another process listens on {host}:{port}, so this server could not start.",
        fix=(
            "See who holds the port; stop it if it is a leftover of yours, or choose another port (for "
            "the proxy infrastructure.litellm_port, 0 takes any free one)."
        ),
        command="ss -ltnp 'sport = :{port}'",
        source="recordings/litellm_fail_port_in_use.log, recordings/cases/53-made-uvicorn-port-in-use.log",
        fires=(
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8203): address "
            "already in use"
        ),
        spares="OSError: [Errno 98] Address already in use",
        recorded=True,
    ),
    Signature(
        id="port-in-use",
        component="host",
        role="cause",
        pattern=r"\[Errno 98\] Address already in use",
        needle="[Errno 98] Address already in use",
        title="A port is taken by another process",
        cause="Another process listens on the port that this server wanted.",
        fix=(
            "See who listens; stop it if it is a leftover of yours, or choose another port "
            "(infrastructure.litellm_port, infrastructure.ray_port; 0 takes any free one)."
        ),
        command="ss -ltnp",
        source="recordings/vllm_fail_port_in_use.log",
        fires="OSError: [Errno 98] Address already in use",
        spares="OSError: [Errno 111] Connection refused",
        recorded=True,
    ),
    Signature(
        id="port-in-use-torch",
        component="torch",
        role="cause",
        pattern=(
            "The server socket has failed to (?:listen on any local network address|bind to "
            r"\S{1,60})[^\n]{0,300}?port: (?P<port>\d{1,5})[^\n]{0,200}?EADDRINUSE"
        ),
        needle="The server socket has failed to",
        title="Port {port} of torch's rendezvous is taken by another process",
        cause="Another process (often a training run that did not end) listens on MASTER_PORT {port}.",
        fix="See who holds port {port}, stop it if it is yours, and restart.",
        command="ss -ltnp 'sport = :{port}'",
        source="torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp",
        fires=(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
            "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
            "already in use"
        ),
        spares=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
            "trying to connect to (127.0.0.1, 29500)."
        ),
    ),
    Signature(
        id="port-in-use-zmq",
        component="host",
        role="cause",
        pattern=r"zmq\.error\.ZMQError: Address already in use(?: \(addr='(?P<addr>[^']{1,200})'\))?",
        needle="zmq.error.ZMQError: Address already in use",
        title="A ZMQ socket is taken: another run, or a leftover of one, uses it",
        cause="Two runs use the same ZMQ socket, or a run that was killed left its socket file in /tmp.",
        fix="Stop the other run; if there is none, delete /tmp/rl-colocate-zmq-*.sock and restart.",
        command="ls -l /tmp/rl-colocate-zmq-*.sock",
        source="verl issue 6233",
        fires="zmq.error.ZMQError: Address already in use (addr='ipc:///tmp/rl-colocate-zmq-0.sock')",
        spares="zmq.error.ZMQError: No such device (addr='tcp://eth9:5555')",
    ),
    Signature(
        id="no-permission",
        component="host",
        role="cause",
        pattern=r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^'\n]{1,300})'",
        needle="PermissionError: [Errno 13] Permission denied: '",
        title="Permission denied: {path}",
        cause="This user may not read or write {path}.",
        fix=(
            "Give this user access (ls -ld shows who has it), or use another path (run.run_root, "
            "data.data_dir, HF_HOME)."
        ),
        command="ls -ld '{path}'",
        source="errno 13 EACCES, as Python prints it",
        fires="PermissionError: [Errno 13] Permission denied: '/data/ckpt/global_step_40'",
        spares="PermissionError: [Errno 1] Operation not permitted",
    ),
    Signature(
        id="name-resolution",
        component="host",
        role="cause",
        pattern=r"\[Errno -[23]\] (?:Name or service not known|Temporary failure in name resolution)",
        needle="[Errno -",
        title="A host name could not be resolved",
        cause=(
            "DNS gave no address: there is no such name, or this machine or sandbox has no way out to "
            "the internet."
        ),
        fix=(
            "Check the name and the network; where there is no internet, use local paths "
            "(model.model_path, data.data_dir) and HF_HUB_OFFLINE=1."
        ),
        severity="warning",
        alive=True,
        source="socket.gaierror",
        fires="socket.gaierror: [Errno -2] Name or service not known",
        spares="ConnectionRefusedError: [Errno 111] Connection refused",
    ),
    Signature(
        id="name-resolution-url",
        component="host",
        role="cause",
        pattern=r"Failed to resolve '(?P<host>[^'\n]{1,200})'",
        needle="Failed to resolve '",
        title="The host name {host} could not be resolved",
        cause=(
            "DNS gave no address for {host}: there is no such name, or this machine or sandbox has no "
            "way out to the internet."
        ),
        fix=(
            "Check the network; where there is no internet, use local paths (model.model_path, "
            "data.data_dir) and HF_HUB_OFFLINE=1. Sandboxes need their files baked into the image."
        ),
        severity="warning",
        alive=True,
        source="urllib3 NameResolutionError",
        fires=(
            "NameResolutionError(\"HTTPSConnection(host='raw.githubusercontent.com', port=443): Failed to "
            "resolve 'raw.githubusercontent.com' ([Errno -3] Temporary failure in resolving)\")"
        ),
        spares="HTTPSConnection(host='raw.githubusercontent.com', port=443): Connection refused",
    ),
)
