"""Signatures of limits of a process or user: open files, threads, processes."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
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
    *family(
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
        Text(
            id="thread-limit-openblas",
            pattern=r"pthread_create failed[^\n]{0,80}Resource temporarily unavailable",
            needle="pthread_create failed",
            source="OpenBLAS blas_server.c",
            fires=(
                "OpenBLAS blas_thread_init: pthread_create failed for thread 11 of 64: Resource temporarily "
                "unavailable"
            ),
            spares="OpenBLAS blas_thread_init: pthread_create succeeded for 64 threads; RLIMIT_NPROC 4096 current",
        ),
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
)
