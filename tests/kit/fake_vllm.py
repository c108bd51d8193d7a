"""Environments with a package that stands for vLLM: simulated, it is no vLLM.

Its command line refuses unknown options as argparse does, and its token routes are open, absent or switched off as in
the version that it stands for.
"""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path

# version -> (whether it knows --enable-scale-out, status of the token routes without it; 0 = they answer)
VERSIONS = {"0.23": (False, 404), "0.24": (False, 0), "0.30": (True, 404), "0.32": (True, 403)}
TEXT = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out"
_SERVER = """
import argparse, http.server, json, signal
from vllm.entrypoints.openai.cli_args import FrontendArgs

parser = argparse.ArgumentParser(prog="vllm serve")
parser.add_argument("--port", type=int)
for field in FrontendArgs.__annotations__:
    parser.add_argument("--" + field.replace("_", "-"), action="store_true")
args = parser.parse_args()


def stop(*_):
    raise RuntimeError("cancelled by a signal")  # as a server whose end is not orderly


signal.signal(signal.SIGTERM, stop)
print("options:", vars(args), flush=True)
closed = 0 if getattr(args, "enable_scale_out", False) else {closed}
refusals = {{404: {{"detail": "Not Found"}}, 403: {{"error": {{"message": {text!r}, "code": 403}}}}}}
choice = {{"index": 0, "token_ids": [7], "finish_reason": "length", "message": {{"role": "assistant"}},
          "logprobs": {{"content": [{{"logprob": -0.5}}]}}}}
ANSWER = {{"token_ids": [1, 2], "choices": [choice]}}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, {{}})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        scale_out = self.path.endswith(("render", "/generate"))
        if closed and scale_out:
            self.answer(closed, refusals[closed])
        else:
            self.answer(200, ANSWER)

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
"""


def environment(folder: Path, version: str) -> Path:
    """Make such an environment; returns its folder. ``python -m vllm --port N`` serves."""
    knows, closed = VERSIONS[version]
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    options = packages / "vllm" / "entrypoints" / "openai" / "cli_args.py"
    options.parent.mkdir(parents=True)
    for package in (packages / "vllm", options.parents[1], options.parent):
        (package / "__init__.py").write_text("")
    field = "    enable_scale_out: bool = False\n" if knows else ""
    options.write_text(f"class FrontendArgs:\n    tokens_only: bool = False\n{field}")
    (packages / "vllm" / "__main__.py").write_text(_SERVER.format(closed=closed, text=TEXT))
    return folder
