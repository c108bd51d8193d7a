"""Processes that a user starts by hand, for ``liverl-tui watch``.

Simulated: ``vllm serve`` is a script of that name that answers /health and /metrics as vLLM does. Nothing in it is
ours.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SERVER = """
import http.server, os, signal, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
started = time.time()
print("INFO 11-24 17:00:00 [api_server.py:1272] vLLM API server version 0.24.0", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        down = os.path.exists(sys.argv[0] + ".unwell")
        if self.path == "/metrics":
            count = int((time.time() - started) * 100)
            text = f"vllm:num_requests_running 3.0\\nvllm:num_requests_waiting 1.0\\n"
            text += f"vllm:generation_tokens_total {count}\\nvllm:kv_cache_usage_perc 0.25\\n"
        else:
            text = ""
        body = text.encode()
        self.send_response(503 if down and self.path == "/health" else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        print("POST " + self.path, flush=True)

    def log_message(self, *args):
        pass


print("INFO:     Application startup complete.", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
TRAINER = """
import sys, time
for step in range(1, 1000):
    time.sleep(0.3)
    print(f"step:{step} - critic/rewards/mean:{0.1 + step / 1000:.3f} - timing_s/step:0.3", flush=True)
"""


@dataclass
class Started:
    """Processes of one test; ``stop`` kills and reaps them."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def program(self, name: str) -> Path:
        """Where a program of that name goes: outside of the folder that is watched."""
        path = self.folder.parent / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def start(self, log: Path | None, *argv: object, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a command whose output goes to ``log``."""
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        with open(log or "/dev/null", "ab") as out:
            process = subprocess.Popen(
                [str(word) for word in argv],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=cwd or self.folder,
            )
        self.processes.append(process)
        return process

    def vllm(self, port: int, log: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        """``vllm serve`` (simulated) on ``port``."""
        program = self.program("vllm")
        program.write_text(SERVER)
        words = ("serve", "org/model", "--port", port, "--tool-call-parser", "hermes")
        return self.start(log, sys.executable, program, *words, cwd=cwd)

    def trainer(self, log: Path, program: str = TRAINER) -> subprocess.Popen[bytes]:
        """A trainer that is called as verl's (simulated), and prints a step each 0.3 s. ``program``: what it runs."""
        path = self.program("main_ppo.py")
        path.write_text(program)
        return self.start(log, sys.executable, "-u", path, "trainer.total_epochs=1")

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
