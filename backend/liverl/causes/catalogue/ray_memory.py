"""Signatures of Ray's memory: its monitor, its object store, its disk."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="ray-memory-monitor",
        component="ray",
        role="cause",
        pattern=(
            r"(?P<count>\d{1,5}) worker\(s\) were killed due to the node running low on memory\. Memory "
            r"on the node \(IP: (?P<node>[^,\n]{1,60}), ID: \w{1,80}\) was (?P<used>[\d.]{1,12}GB) used / "
            r"(?P<limit>[\d.]{1,12}GB) limit \((?P<share>[\d.]{1,12})\)"
        ),
        needle="worker(s) were killed due to the node running low on memory",
        title="Ray's memory monitor killed {count} worker(s): {used} of {limit} was used",
        cause=(
            "The memory of node {node} was {used} of {limit} ({share} of it), over the threshold of Ray's memory "
            "monitor (RAY_memory_usage_threshold, by default 0.95), so it killed {count} worker(s)."
        ),
        fix=(
            "Use fewer workers (harbor_runtime.num_workers, verl.agent_workers) or a host with more memory; the "
            "record lists the largest processes (Top 10 memory users). If RAY_memory_usage_threshold was lowered, "
            "raise it."
        ),
        command="free -g",
        source="recordings/verl_cpu/fail_ray_oom_kill.stderr.log",
        fires=(
            "ray.exceptions.OutOfMemoryError: 6 worker(s) were killed due to the node running low on "
            "memory. Memory on the node (IP: 192.0.2.2, ID: "
            "1af9b15f4b539579b202e87c70a2e68ccc8517fec8a0460744fd1efc) was 22.45GB used / 23.54GB limit "
            "(0.953484)"
        ),
        spares="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        recorded=True,
    ),
    Signature(
        id="ray-memory-monitor-task",
        component="ray",
        role="cause",
        pattern="Task was killed due to the node running low on memory",
        needle="Task was killed due to the node running low on memory",
        title="Ray killed a worker: the node's host memory is full",
        cause=(
            "The memory of the node was over the threshold of Ray's memory monitor (by default 95 %), so it "
            "killed a worker; the largest processes are listed below the message."
        ),
        fix=(
            "Use fewer workers (harbor_runtime.num_workers, verl.agent_workers) or a host with more "
            "memory. RAY_memory_usage_threshold moves the limit."
        ),
        command="free -g",
        source="recordings/cases/23-verl-ray-oom-killer-agent-loop.log",
        fires=(
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on "
            "memory.\nMemory on the node (IP: 10.0.0.9, ID: 87d772) where the lease (lease ID: 790000, "
            "name=agent_loop_worker_4_99f2:AgentLoopWorker.__init__, pid=2285, memory used=10.13GB) was "
            "running was 891.06GB / 937.50GB (0.950459)"
        ),
        spares=(
            "ray.exceptions.OutOfMemoryError: 6 worker(s) were killed due to the node running low on memory."
        ),
    ),
    Signature(
        id="ray-memory-monitor-raylet",
        component="ray",
        role="cause",
        pattern=(
            r"(?P<count>\d{1,5}) Workers \(tasks / actors\) killed due to memory pressure "
            r"\(OOM\)[^\n]{0,160}at node \(ID: \w{1,80}, IP: (?P<node>[^)\n]{1,60})\)"
        ),
        needle="Workers (tasks / actors) killed due to memory pressure (OOM)",
        title="Ray killed {count} workers on {node}: its host memory is full",
        cause=(
            "The memory of node {node} was over the threshold of Ray's memory monitor (by default "
            "95 %), so it killed {count} workers."
        ),
        fix=(
            "Use fewer workers (harbor_runtime.num_workers, verl.agent_workers) or a host with more "
            "memory. RAY_memory_usage_threshold moves the limit."
        ),
        command="ray logs raylet.out -ip {node}",
        source="recordings/cases/23-verl-ray-oom-killer-agent-loop.log",
        fires=(
            "[2026-01-20 08:13:25,391 E 2105 2105] (raylet) node_manager.cc:3099: 1 Workers (tasks / "
            "actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node "
            "(ID: 87d772, IP: 10.0.0.9) over the last time period."
        ),
        spares=(
            "[2026-01-20 08:13:25,391 E 2105 2105] (raylet) node_manager.cc:3099: 0 Workers crashed due "
            "to other reasons"
        ),
    ),
    Signature(
        id="ray-object-store-full",
        component="ray",
        role="cause",
        pattern=r"ray\.exceptions\.ObjectStoreFullError",
        needle="ray.exceptions.ObjectStoreFullError",
        title="Ray's object store is full",
        cause="All objects in Ray's shared memory are still in use, so no further one fits.",
        fix=(
            "Give it more with ray.object_store_memory (bytes; /dev/shm must hold them), or keep fewer "
            "samples at a time (training.train_batch_size)."
        ),
        command="ray memory; df -h /dev/shm",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.ObjectStoreFullError: Failed to put object ffff in object store because it "
            "is full. Object size is 17179869184 bytes.\nThe local object store is full of objects that "
            "are still in scope and cannot be evicted."
        ),
        spares="INFO ray.exceptions are shown in full; the object store is 12 % full",
    ),
    Signature(
        id="ray-out-of-disk",
        component="ray",
        role="cause",
        pattern=r"ray\.exceptions\.OutOfDiskError",
        needle="ray.exceptions.OutOfDiskError",
        title="Ray's object store and its disk are full",
        cause="Ray moved objects to disk, and the disk under Ray's temporary directory is over 95 % full.",
        fix="Free space there (df -h) or set ray.temp_dir to a path with room.",
        command="df -h /tmp",
        source="Ray python/ray/exceptions.py",
        fires=(
            "ray.exceptions.OutOfDiskError: Local disk is full\nThe object cannot be created because the "
            "local object store is full and the local disk's utilization is over capacity (95% by "
            "default)."
        ),
        spares="INFO ray.exceptions are shown in full; disk: 71 % used",
    ),
    Signature(
        id="ray-disk-nearly-full",
        component="ray",
        role="cause",
        pattern=(
            r"(?P<path>/\S{1,200}) is over (?P<share>[\d.]{1,6})% full, available space: "
            r"(?P<free>[^;\n]{1,60});"
        ),
        needle="% full, available space:",
        title="The disk under Ray's directory is over {share} % full ({free} left)",
        cause=(
            "The disk under Ray's temporary directory is nearly full; Ray will refuse objects that it "
            "must move there."
        ),
        fix="Free space there, or set ray.temp_dir to a path with room.",
        command="df -h {path}",
        severity="warning",
        alive=True,
        source="Ray src/ray/common/file_system_monitor.cc",
        fires=(
            "(raylet) [2025-03-01 10:00:00,123 E 77 99] (raylet) file_system_monitor.cc:111: "
            "/tmp/ray/session_2025-03-01_09-00-00_1_1 is over 95% full, available space: 4.81 GB; "
            "capacity: 98.3 GB. Object creation will fail if spilling is required."
        ),
        spares="(raylet) /tmp/ray/session_1 is 71% full, available space: 28.4 GB; capacity: 98.3 GB.",
    ),
    Signature(
        id="ray-spilling",
        component="ray",
        role="cause",
        pattern=r"Spilled (?P<mib>\d{1,10}) MiB, (?P<count>\d{1,10}) objects, write throughput",
        needle=" objects, write throughput",
        title="Ray moved {mib} MiB of objects to disk, which slows the run",
        cause="Ray's shared memory was full, so {count} objects were written to disk.",
        fix="Raise ray.object_store_memory (bytes; /dev/shm must hold them).",
        severity="info",
        alive=True,
        source="github.com/ray-project/ray/issues/24070",
        fires="(raylet, ip=172.31.82.154) Spilled 9212 MiB, 239997 objects, write throughput 326 MiB/s.",
        spares="(raylet) Restored 120 MiB, 12 objects, read throughput 99 MiB/s",
    ),
    Signature(
        id="ray-shm-small",
        component="ray",
        role="cause",
        pattern=(
            r"The configured object store size \((?P<wanted>[\d.]{1,20}) GB\) exceeds /dev/shm size "
            r"\((?P<has>[\d.]{1,20}) GB\)"
        ),
        needle="The configured object store size (",
        title="Ray's object store ({wanted} GB) does not fit /dev/shm ({has} GB)",
        cause="Ray keeps its objects in /dev/shm, which has {has} GB, and {wanted} GB are configured.",
        fix=(
            "Lower ray.object_store_memory (bytes), free /dev/shm, or start the container with a larger "
            "--shm-size."
        ),
        command="df -h /dev/shm",
        source="Ray python/ray/_private/services.py",
        fires=(
            "ValueError: The configured object store size (64.0 GB) exceeds /dev/shm size (8.5 GB). This "
            "will harm performance."
        ),
        spares="INFO services.py:1 -- The object store is using /dev/shm",
    ),
)
