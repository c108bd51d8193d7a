"""Signatures of the kernel and of tools that meet a host's limits."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nfs-silent",
        component="host",
        role="cause",
        pattern=r"nfs: server (?P<server>\S{1,200}) not responding",
        needle=" not responding",
        title="The NFS server {server} does not answer, so that processes hang",
        cause="Whatever reads or writes its files waits in the kernel (state D) until {server} answers again.",
        fix="See whether {server} and the network to it are up; until then no signal ends the processes that wait.",
        command="mount | grep {server}; ps -eo pid,stat,wchan:30,cmd | awk '$2 ~ /D/'",
        alive=True,
        source="Linux net/sunrpc",
        fires="[1209600.100001] nfs: server fs01 not responding, still trying",
        spares="[1209700.100001] nfs: server fs01 OK, responding",
    ),
    Signature(
        id="hung-task",
        component="host",
        role="cause",
        pattern=r"INFO: task (?P<task>\S{1,60}):(?P<pid>\d{1,10}) blocked for more than (?P<seconds>\d{1,6}) seconds",
        needle=" blocked for more than ",
        title="{task} (pid {pid}) waits in the kernel for more than {seconds} s",
        cause="The process waits for a disk, a network file system or a device, and no signal reaches it.",
        fix="Read the stack below the line: it names the file system or driver; look at that disk or server.",
        command="cat /proc/{pid}/stack; dmesg -T | tail -50",
        severity="warning",
        alive=True,
        source="Linux kernel/hung_task.c",
        fires="[1209720.1] INFO: task python3:22112 blocked for more than 120 seconds.",
        spares="[1209720.1] INFO: task python3:22112 ran for more than 120 seconds.",
    ),
    Signature(
        id="pids-limit-kernel",
        component="host",
        role="cause",
        pattern=r"cgroup: fork rejected by pids controller in (?P<cgroup>\S{1,300})",
        needle="fork rejected by pids controller",
        title="A container or job has as many processes as it may have (pids.max)",
        cause="The kernel refused a further process or thread in {cgroup}.",
        fix="Raise the limit (docker --pids-limit, podPidsLimit of the kubelet), or use fewer workers.",
        command="cat /sys/fs/cgroup{cgroup}/pids.max",
        alive=True,
        source="Linux kernel/cgroup/pids.c",
        fires="[81.2] cgroup: fork rejected by pids controller in /system.slice/docker-0a1b2c.scope",
        spares="[81.2] cgroup: pids controller enabled in /system.slice",
    ),
    Signature(
        id="watch-limit",
        component="host",
        role="cause",
        pattern=r"(?:OS file watch limit|System limit for number of file watchers) reached",
        needle=" reached",
        title="No further files can be watched: the host's inotify limit is reached",
        cause="Programs that reload on changes watch each file, and the host allows only so many watches.",
        fix="Raise it (sysctl fs.inotify.max_user_watches=1048576), or start the program without reload.",
        command="sysctl fs.inotify.max_user_watches fs.inotify.max_user_instances",
        source="watchfiles; Node.js",
        fires='OSError: OS file watch limit reached. about ["/app"]',
        spares="OS file watch started; limit 1048576 not reached",
    ),
    Signature(
        id="disk-full-tool",
        component="host",
        role="cause",
        pattern=(
            r"(?:^|\n)(?![^\n]{0,200}(?:\[Errno 28\]|shared memory segment)|(?:mkdir|cp|mv|tee|touch|ln|rm|tar|rsync|"
            r"cat): )"
            r"[^\n]{0,200}"
            r"(?:: |\b[Ww]rite failed because )[Nn]o space left on device"
        ),
        needle="o space left on device",
        title="Disk full: no space left on device",
        cause="A file system that the named program writes to has no space or no inodes left.",
        fix="Free space there (df -h and df -i tell where), or point TMPDIR and the caches to a larger disk.",
        command="df -h; df -i",
        source="errno 28 ENOSPC, as tools print it",
        fires="fatal: cannot copy 'description' to '/data/r/.git/description': No space left on device",
        spares="OSError: [Errno 28] No space left on device",
    ),
    Signature(
        id="too-many-open-files-tool",
        component="host",
        role="cause",
        pattern=(
            r"(?:: |error 24, |accept4?: )[Tt]oo many open files(?: in "
            r"system)?\s{0,4}(?:$|\n|\(os error 24\))"
        ),
        needle="oo many open files",
        title="Too many open files: the limit of this process is reached",
        cause="A process or the host has as many files and sockets open as its limit (ulimit -n) allows.",
        fix="Raise the limit in the shell that starts the run, then restart: ulimit -n 65536.",
        command="ulimit -n 65536",
        source="errno 24 EMFILE, as shells and Rust programs print it",
        fires="bash: line 1: /dev/null: Too many open files",
        spares="WARNING too many open files may be a problem later",
    ),
    Signature(
        id="numpy-memory",
        component="host",
        role="cause",
        pattern=r"ArrayMemoryError: Unable to allocate (?P<size>[\d.]{1,10} \wi?B) for an array with shape "
        r"(?P<shape>\([\d, ]{1,100}\))",
        needle="ArrayMemoryError: Unable to allocate",
        title="An array of {size} does not fit into memory",
        cause="numpy asked for {size} (shape {shape}); the host's memory, or the limit of this process, is used up.",
        fix="Load less at once (batches, memory maps), or give the job more memory.",
        command="free -g; ulimit -v; cat /sys/fs/cgroup/memory.max",
        source="numpy/core/_exceptions.py",
        fires=(
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 128. MiB for an array with shape "
            "(1024, 1024, 16) "
            "and data type float64"
        ),
        spares="numpy: allocated 128. MiB for an array with shape (1024, 1024, 16)",
    ),
)
