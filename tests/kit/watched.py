"""Processes that a user starts by hand, for ``liverl-tui watch``.

Simulated: ``vllm serve`` is a script of that name that answers /health and /metrics as vLLM does. Nothing in it is
ours. Servers inside Ray are processes with their titles.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.waiting import wait_until
from liverl.procs import procfs

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
# SGLang's server and its router, as far as `watch` asks them; each writes the paths that it is asked for beside itself.
SGLANG = """
import http.server, pathlib, sys
port, router = int(sys.argv[sys.argv.index("--port") + 1]), "router" in pathlib.Path(sys.argv[0]).name
asked = pathlib.Path(f"{sys.argv[0]}.{port}.asked").open("a", buffering=1)
metrics = "sglang:num_running_reqs 5.0\\nsglang:num_queue_reqs 2.0\\nsglang:token_usage 0.5\\n"
workers = '{"workers": [{"url": "http://127.0.0.1:' + sys.argv[-1] + '"}]}'
answers = {"/liveness": "", "/workers": workers} if router else {"/v1/models": "{}", "/metrics": metrics}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.write(self.path + "\\n")
        body = answers.get(self.path, "").encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print("The server is fired up and ready to roll!", flush=True)
server.serve_forever()
"""
TRAINER = """
import sys, time
for step in range(1, 1000):
    time.sleep(0.3)
    print(f"step:{step} - critic/rewards/mean:{0.1 + step / 1000:.3f} - timing_s/step:0.3", flush=True)
"""

# What verl starts inside Ray: a server and, below it, its engine. The first words of their command lines are titles, as
# setproctitle writes them. argv: the folder in which their pids are written, the port.
ENGINE = "import time\nwhile True:\n    time.sleep(1)\n"
ACTOR = """
import http.server, os, pathlib, subprocess, sys
folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
engine = subprocess.Popen(["VLLM::EngineCore", "-c", sys.argv[3]], executable=sys.argv[4])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if engine.poll() is not None else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
(folder / f"{port}.pids.new").write_text(f"{os.getpid()} {engine.pid}")
(folder / f"{port}.pids.new").rename(folder / f"{port}.pids")
server.serve_forever()
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

    def sglang(self, port: int, log: Path) -> subprocess.Popen[bytes]:
        """``sglang.launch_server`` (simulated) on ``port``."""
        program = self.program("sglang/launch_server.py")
        program.write_text(SGLANG)
        return self.start(log, sys.executable, program, "--model-path", "org/model", "--port", port)

    def router(self, port: int, worker: int, log: Path) -> subprocess.Popen[bytes]:
        """``sglang-router`` (simulated) on ``port``, in front of one server."""
        program = self.program("sglang-router")
        program.write_text(SGLANG)
        return self.start(log, sys.executable, program, "launch", "--port", port, "--worker-urls", worker)

    def trainer(self, log: Path, program: str = TRAINER) -> subprocess.Popen[bytes]:
        """A trainer that is called as verl's (simulated), and prints a step each 0.3 s. ``program``: what it runs."""
        path = self.program("main_ppo.py")
        path.write_text(program)
        return self.start(log, sys.executable, "-u", path, "trainer.total_epochs=1")

    def verl(self, log: Path, *ports: int, program: str = TRAINER) -> subprocess.Popen[bytes]:
        """A trainer that is called as verl's, with a server and its engine below it for each port (simulated)."""
        start = "".join(
            f"subprocess.Popen({self.actor(port)!r}, executable={sys.executable!r})\n" for port in ports
        )
        start = f"import subprocess\n{start}"
        return self.trainer(log, start + program)

    @property
    def pids(self) -> Path:
        """The folder in which servers write their pids: outside of the folder that is watched."""
        folder = self.folder.parent / "pids"
        folder.mkdir(exist_ok=True)
        return folder

    def actor(self, port: int) -> list[str]:
        """The command line of a server with its title; its executable is Python."""
        return ["ray::vLLMHttpServer", "-c", ACTOR, str(self.pids), str(port), ENGINE, sys.executable]

    def server(self, port: int, **how: Any) -> subprocess.Popen[bytes]:
        """A server with its engine that no trainer of the folder has started."""
        command, devnull = self.actor(port), subprocess.DEVNULL
        process = subprocess.Popen(command, executable=sys.executable, cwd=self.pids, stdout=devnull, **how)
        self.processes.append(process)
        return process

    def pids_of(self, port: int) -> tuple[int, int]:
        """The pids of the server on ``port`` and of its engine, once they run."""
        file = self.pids / f"{port}.pids"
        wait_until(file.exists, what="a server")
        server, engine = file.read_text().split()
        return int(server), int(engine)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for file in (self.folder.parent / "pids").glob("*.pids"):
            for pid in map(int, file.read_text().split()):
                if str(self.folder.parent) in procfs.command_line(pid) or ENGINE[:11] in procfs.command_line(
                    pid
                ):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
