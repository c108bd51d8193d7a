"""What the benchmarks run under a supervisor: ``python -I -S payload.py MODE DIRECTORY NAME [ARGS]``.

Every mode's first act is one line ``pid monotonic-nanoseconds`` in ``DIRECTORY/NAME.born``.
"""

import time

BORN = time.monotonic_ns()

import os  # noqa: E402 - the clock comes first
import sys  # noqa: E402

MODE, FOLDER, NAME, *ARGS = sys.argv[1:]


def note(kind: str, text: str) -> None:
    """One whole line at the end of ``DIRECTORY/NAME.kind``."""
    fd = os.open(f"{FOLDER}/{NAME}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


note("born", f"{os.getpid()} {BORN}")

import signal  # noqa: E402


def forever() -> None:
    while True:
        signal.pause()


def beat() -> None:
    """Prints a line ten times a second: dies, as real services do, where its output leads nowhere. Takes
    0.4 s to end after SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.4), os._exit(0)))
    while True:
        os.write(1, b"beat\n")
        time.sleep(0.1)


def flood() -> None:
    """Waits for SIGUSR1, then writes MEGABYTES in blocks or in lines, ROUNDS times, and notes its CPU seconds."""
    kind, megabytes, rounds = ARGS[0], int(ARGS[1]), int(ARGS[2])
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    note("waiting", "")
    signal.sigwait([signal.SIGUSR1])
    piece = (b"x" * 99 + b"\n") * (655 if kind == "blocks" else 1)
    began, wall = time.process_time(), time.monotonic()
    for _ in range(megabytes * 1_000_000 // len(piece) * rounds):
        left = piece
        while left:
            left = left[os.write(1, left) :]
    note("flooded", f"{time.process_time() - began} {time.monotonic() - wall}")
    forever()


def deaf() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    note("deaf", "")
    forever()


def tree() -> None:
    """A leader that ends at SIGTERM, over three workers that do not: in its session, in one of its own, and
    in one of its own with a parent that has ended."""
    me = [sys.executable, "-I", "-S", __file__, "deaf", FOLDER]
    for kind in ("inside", "session", "orphan"):
        pid = os.fork()
        if pid == 0:
            if kind != "inside":
                os.setsid()
            if kind == "orphan" and os.fork() != 0:
                os._exit(0)
            os.execv(me[0], [*me, f"{NAME}-{kind}"])
        if kind == "orphan":
            os.waitpid(pid, 0)
    forever()


def serve() -> None:
    """Answers one request a connection after 50 ms. Its socket is inherited, or bound here to the port in
    ARGS. SIGUSR1 and SIGTERM: stop accepting, answer what was accepted, exit 0."""
    import select
    import socket
    import threading

    inherited = os.environ.get("LIVERL_LISTEN_FD")
    if inherited is not None:
        listener = socket.socket(fileno=int(inherited))
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(ARGS[0])))
        listener.listen(1024)
    listener.setblocking(False)
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    accepted: list[threading.Thread] = []

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5)
            if connection.recv(64):
                time.sleep(0.05)
                connection.sendall(f"{os.getpid()}\n".encode())

    os.write(1, b"listening\n")
    while True:
        ready, _, _ = select.select([listener, wake_r], [], [])
        if wake_r in ready:
            break
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        accepted = [thread for thread in accepted if thread.is_alive()]
        thread = threading.Thread(target=answer, args=(connection,))
        thread.start()
        accepted.append(thread)
    listener.close()
    for thread in accepted:
        thread.join()


{"sleep": forever, "beat": beat, "flood": flood, "deaf": deaf, "tree": tree, "serve": serve}[MODE]()
