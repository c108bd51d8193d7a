"""A toy service: ``python -S toy.py MODE [ARGS]``. Prints what it does, one line each, unbuffered. Thousands are
started by the tests: what only one mode needs is imported there, and nothing that is installed."""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MODE = sys.argv[1]
ARGS = sys.argv[2:]


def forever() -> None:
    while True:
        signal.pause()


def deaf_grandchildren() -> None:
    """Three workers that ignore TERM and INT: one in its own session, one retitled, one scrubbed."""
    import subprocess

    for kind in ("session", "title", "scrubbed"):
        subprocess.Popen(
            [sys.executable, *([] if kind == "title" else ["-S"]), __file__, "deaf", kind],
            start_new_session=kind != "plain",
            env={} if kind == "scrubbed" else None,
        )
    print("workers started", flush=True)


def listen(port: int, well: Callable[[], bool]) -> None:
    """Answer 200 to every GET while it is ``well``, else 503."""
    import http.server
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if well() else 503)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("listening", flush=True)


def faulty_server(port: int, fault: str, faulty: bool) -> None:
    """An HTTP server that exits 0 on SIGTERM, as uvicorn's do. One that is ``faulty`` *leaves* (exits 0) or is *sick*
    (answers 503) once there is a file "go" in the run's directory, *waits* for it (503 until then), or is *late*
    (answers 503 from the start)."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    go = os.path.join(os.environ["LIVERL_RUN_DIR"], "go")

    def well() -> bool:
        if not faulty or fault not in ("late", "sick", "waits"):
            return True
        return fault != "late" and os.path.exists(go) is (fault == "waits")

    listen(port, well)
    while not (faulty and fault == "leaves" and os.path.exists(go)):
        time.sleep(0.02)
    print("leaving", flush=True)
    sys.exit(0)


def main() -> None:
    if MODE == "sleep":
        print("up", flush=True)
        forever()
    if MODE == "exit":
        time.sleep(float(ARGS[1]) if len(ARGS) > 1 else 0)
        print("leaving", flush=True)
        sys.exit(int(ARGS[0]))
    if MODE == "exit-when":  # a file with this name is in the run's directory
        while not os.path.exists(os.path.join(os.environ["LIVERL_RUN_DIR"], ARGS[1])):
            time.sleep(0.02)
        print("leaving", flush=True)
        sys.exit(int(ARGS[0]))
    if (
        MODE == "deaf-until"
    ):  # ignores signals, and leaves once a file with this name is in the run's directory
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        print("deaf", flush=True)
        while not os.path.exists(os.path.join(os.environ["LIVERL_RUN_DIR"], ARGS[0])):
            time.sleep(0.02)
        sys.exit(0)
    if MODE == "raise":
        raise ValueError("the toy cannot go on")
    if MODE == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if ARGS and ARGS[0] == "title":
            import setproctitle

            setproctitle.setproctitle("toy-worker-with-a-new-title")
        print("deaf", flush=True)
        forever()
    if MODE == "tree":
        for number in (signal.SIGTERM, signal.SIGINT):
            if "deaf-leader" in ARGS:
                signal.signal(number, signal.SIG_IGN)
        deaf_grandchildren()
        forever()
    if MODE == "server":
        faulty_server(
            int(ARGS[0]), ARGS[1], os.environ["LIVERL_GENERATION"] == (ARGS[2] if ARGS[2:] else "1")
        )
    if MODE == "http":
        broken = os.path.join(os.environ["LIVERL_RUN_DIR"], "broken")
        listen(int(ARGS[0]), lambda: not os.path.exists(broken))
        forever()


main()
