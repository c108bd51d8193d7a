"""A run whose replicas stand for ``vllm serve``.

Simulated: each is no vLLM but an application of its kind (Starlette, in LiteLLM's environment) with some of its routes.
Real are uvicorn, the guard as ``--middleware`` adds it, the run and its backend.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path

from kit.components import LITELLM
from kit.runs import ToyRun, make_run, toy
from liverl.environments import default_cache_dir, ensure
from liverl.plan.guest_path import stub
from liverl.plan.replica import TOKEN
from liverl.plan.spec import PortSpec, Probe, Probes
from liverl.util.token_guard import VARIABLE

SERVER = """
import sys
import uvicorn
from liverl.util.token_guard import TokenGuard
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

def answer(request):
    return PlainTextResponse("# TYPE vllm:num_requests_running gauge\\nvllm:num_requests_running 0.0\\n" * 50)

app = Starlette(routes=[
    Route("/health", answer), Route("/metrics", answer),
    *(Route(path, answer, methods=["POST"]) for path in ("/update_weights", "/collective_rpc", "/sleep")),
])
app.add_middleware(GZipMiddleware)  # as prometheus_client compresses where a client accepts it
app.add_middleware(TokenGuard)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
"""


def ask(url: str, method: str, token: str, body: bytes = b"{}") -> int:
    """The status of the answer."""
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def run_of(folder: Path, replicas: int) -> ToyRun:
    """The directory of a run with so many of them."""
    python = asyncio.run(ensure(LITELLM, default_cache_dir(), lambda text, share: None))
    probe = Probe("http", port="http", path="/health", interval=0.1, failures=50, token_file=TOKEN)
    replica = toy(
        "replica-{index}",
        kind="replica",
        argv=(str(python), "-c", SERVER, "{port:http}"),
        env={"PYTHONPATH": "{run_dir}/replica/path"},
        secret_env={VARIABLE: f"{folder}/tests/toy/{TOKEN}"},
        files=(stub("replica/path"),),
        ports=(PortSpec("http"),),
        probes=Probes(startup=probe, startup_deadline=120.0),
    )
    run = make_run(folder, [toy("steady", "sleep")], replica=replica, replicas=replicas)
    plan = json.loads((run.run_dir / "plan.json").read_text())
    plan |= {"engine": "vllm", "replica_token_file": TOKEN}
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    return run


def token_of(run: ToyRun) -> str:
    """The token that the run's replicas require."""
    return (run.run_dir / TOKEN).read_text().strip()
