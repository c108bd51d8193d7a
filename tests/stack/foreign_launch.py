"""A launch script in miniature, for Ray's own Python: ``foreign_launch.py LITELLM PORT FOLDER TEMP``.

It starts a real Ray with two named actors that serve HTTP (simulated engines), and then a real LiteLLM with two
workers whose configuration lists only the first of them, as a discovery that stops at the first gap leaves it.
"""

import http.server
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]
ray = importlib.import_module("ray")
NAMES = ("claude-*", "hosted_vllm/policy", "policy")


class Server:
    """Answers like vLLM, and counts."""

    def __init__(self, name):
        self.name, self.count, self.lock = name, 0, threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if self.path == "/metrics":
                    self.answer(f"vllm:request_success_total {outer.count}\n".encode(), "text/plain")
                else:
                    self.answer(json.dumps({"count": outer.count}).encode())

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                with outer.lock:
                    outer.count += 1
                message = {"role": "assistant", "content": outer.name}
                reply = {
                    "id": "chat",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "policy",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }
                self.answer(json.dumps(reply).encode())

            def answer(self, body, kind="application/json"):
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def get_server_address(self):
        return "127.0.0.1", self.server.server_address[1]


def main():
    litellm, port, folder, temp = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(
        num_cpus=2,
        include_dashboard=True,
        dashboard_port=int(os.environ["RAY_DASHBOARD_PORT"]),
        object_store_memory=100 << 20,
        _temp_dir=temp,
        namespace="verl",
        log_to_driver=False,
    )
    actor = ray.remote(num_cpus=0)(Server)
    servers = [actor.options(name=f"vllm_server_{i}_0").remote(f"server {i}") for i in range(2)]
    addresses = ["{}:{}".format(*ray.get(server.get_server_address.remote())) for server in servers]
    config = f"/tmp/litellm_cc_{port}.yaml"
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": "hosted_vllm/policy", "api_base": f"http://{addresses[0]}/v1"},
        }
        for name in NAMES
    ]
    with open(config, "w") as file:
        file.write("# written at launch\n")
        json.dump({"model_list": models, "litellm_settings": {"drop_params": True, "telemetry": False}}, file)
    with open(os.path.join(folder, "key")) as file:
        key = file.read()  # LiteLLM refuses to start without one
    command = [litellm, "--config", config, "--host", "127.0.0.1", "--port", port, "--num_workers", "2"]
    # Workers on busy cores import for longer than uvicorn's 5 s, and are killed and started for ever.
    command += ["--timeout_worker_healthcheck", "300"]
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key}
    env = {name: text for name, text in env.items() if not name.startswith("PYTHON")}
    with open(f"/tmp/litellm_cc_{port}.log", "w") as log:
        proxy = subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    with open(f"/tmp/litellm_cc_{port}.pid", "w") as file:
        file.write(f"{proxy.pid}\n")
    with open(os.path.join(folder, "addresses.json.new"), "w") as file:
        json.dump(addresses, file)
    os.replace(os.path.join(folder, "addresses.json.new"), os.path.join(folder, "addresses.json"))
    print("launched", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
