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
            r"(?:^|\n)(?![^\n]{0,200}(?:\[Errno 28\]|shared memory segment|</?torch_|pyxis: ))"
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
            r"(?:(?<!inotify_init)(?<!watcher): |error 24, |accept4?: )[Tt]oo many open files(?: in "
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
    Signature(
        id="disk-fails",
        component="host",
        role="cause",
        pattern=r"I/O error, dev (?P<device>[\w-]{1,40}), sector \d{1,20}",
        needle="I/O error, dev ",
        title="The disk {device} of the host fails",
        cause="The kernel could not read or write sectors of {device}; files on it are lost or read-only.",
        fix="Save what is there, look at smartctl -a /dev/{device}, and have the disk or its connection replaced.",
        command="dmesg -T | grep {device}; smartctl -a /dev/{device}",
        alive=True,
        source="Linux block layer; crucible issue 1844",
        fires="[ 4730.850358] I/O error, dev nvme0n1, sector 167431176 op 0x1:(WRITE) flags 0x4000",
        spares="[ 4730.850358] no I/O error, dev nvme0n1 attached",
    ),
    Signature(
        id="filesystem-damaged",
        component="host",
        role="cause",
        pattern=r"EXT4-fs error \(device (?P<device>[\w-]{1,40})\)",
        needle="EXT4-fs error (device ",
        title="The file system on {device} is damaged",
        cause="The kernel found errors in it and may have made it read-only.",
        fix="Stop what writes there, and check it unmounted (fsck); look for errors of the disk itself.",
        command="dmesg -T | grep {device}; mount | grep {device}",
        alive=True,
        source="Linux fs/ext4",
        fires=(
            "[32112.487146] EXT4-fs error (device nvme0n1p1): __ext4_find_entry:1588: inode #43: comm gmain: "
            "reading directory lblock 0"
        ),
        spares="[1.2] EXT4-fs (nvme0n1p1): mounted device; no error",
    ),
    Signature(
        id="memory-damaged",
        component="host",
        role="cause",
        pattern=r"Memory failure: 0x[0-9a-f]{1,16}: Killing (?P<what>[^\n:]{1,80})",
        needle="Memory failure: 0x",
        title="The host's memory has an uncorrectable error, which ended {what}",
        cause="A memory module returned wrong data; the kernel kills the processes that use that page.",
        fix="Exclude the host from jobs and have the module replaced; restart what ran there.",
        command="dmesg -T | grep -iE 'edac|hardware error|memory failure'",
        alive=True,
        gone=True,
        source="Linux EDAC and mm/memory-failure.c",
        fires="[11219.3] Memory failure: 0xb757589: Killing python3:4711 due to hardware memory corruption",
        spares="[9.1] Memory failure: 0xb757589: recovery action for free page: Recovered",
    ),
    Signature(
        id="systemd-oom",
        component="host",
        role="cause",
        pattern=r"(?P<unit>[\w@.-]{1,120}): A process of this unit has been killed by the OOM killer",
        needle="A process of this unit has been killed by the OOM killer",
        title="A process of {unit} was killed for memory",
        cause=(
            "The kernel ended a process of {unit}: the unit's memory limit was reached, or the host had no "
            "memory left."
        ),
        fix="Raise MemoryMax of {unit}, or let it and its neighbours use less memory.",
        command="systemctl show {unit} -p MemoryMax; dmesg -T | grep -i 'killed process'",
        source="systemd",
        fires="node7 systemd[1]: litellm.service: A process of this unit has been killed by the OOM killer.",
        spares="litellm.service: A process of this unit has been started",
    ),
)
