"""Real receivers of notifications: a webhook on a local port, and a program that keeps what it gets."""

from __future__ import annotations

import http.server
import json
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.waiting import PATIENCE_S
from liverl.plan.spec import NotifyTarget

TOKEN = "T0KEN-of-the-hook-9f3a"  # in each address: nothing that is written or shown may hold it
# Appends what is on stdin, and the names of its variables, as one line.
_KEEP = """
import json, os, sys
line = json.dumps({"body": json.load(sys.stdin), "env": sorted(os.environ), "cwd": os.getcwd()})
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(fd, line.encode() + b"\\n")
"""


@dataclass
class Hook:
    """A webhook. ``status``: of its answers; ``delay``: seconds before each; ``gate``: no answer is given while it is
    not set; ``answer``: its body."""

    port: int = 0
    status: int = 200
    delay: float = 0.0
    gate: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)  # the bodies of all requests, before the answer

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/{TOKEN}"

    def target(self, folder: Path, mode: int = 0o600, address: str = "") -> NotifyTarget:
        """A target with this address, in a new file of ``folder``."""
        path = folder / f"hook-{self.port}-{len(list(folder.glob('hook-*')))}"
        path.write_text(f"{address or self.address}\n")
        path.chmod(mode)
        return NotifyTarget("webhook", file=str(path))

    def kinds(self) -> Counter[str]:
        """How often it was told of each kind of event."""
        return Counter(body["event"] for body in self.asked)


@contextmanager
def webhook(*, certificate: Path | None = None, **options: Any) -> Iterator[Hook]:
    """A real HTTP server that is told. ``certificate``: a file with a key and a certificate; then it speaks TLS."""
    hook = Hook(**options)
    hook.gate.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path.endswith(f"/hook/{TOKEN}")
            hook.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(hook.delay)
            hook.gate.wait(PATIENCE_S)
            try:
                self.send_response(hook.status)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(hook.answer)
            except OSError:
                pass  # whoever asked has left

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    hook.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.gate.set()
        server.shutdown()
        server.server_close()


def keeper_of(file: Path) -> NotifyTarget:
    """A command that appends each message to ``file``, with its surroundings."""
    program = file.with_name(f"{file.name}-keeper.py")
    program.write_text(_KEEP)
    return NotifyTarget("command", words=(sys.executable, "-I", "-S", str(program), str(file)))


def kept(file: Path) -> list[dict[str, Any]]:
    """What such a command has got."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
