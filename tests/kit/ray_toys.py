"""Runs in Ray's own Python: makes actors that look like verl's server actors. Commands are lines of JSON on stdin, each
answered with one line: ``{"make": NAME, "namespace": NS, "options": {...}, "arguments": {...}}``, ``{"kill": ..}``.
"""

import http.server
import importlib
import json
import os
import sys
import threading
import time

if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]
ray = importlib.import_module("ray")


class Server:
    """``delay``: seconds until it listens; ``mute``: it never does; ``code``: its process exits at once with it;
    ``slow``: seconds in its constructor; ``blocked``: seconds for which its address is not told at all."""

    def __init__(self, delay=0.0, mute=False, code=None, slow=0.0, blocked=0.0, fail=""):
        self.port = None
        time.sleep(slow)
        self.free = time.monotonic() + blocked
        if fail:
            raise RuntimeError(fail)
        if code is not None:
            os._exit(code)
        if not mute:
            threading.Thread(target=self.serve, args=(delay,), daemon=True).start()

    def serve(self, delay):
        time.sleep(delay)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200 if self.path == "/health" else 404)
                self.end_headers()

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        server.serve_forever()

    def get_server_address(self):
        time.sleep(max(0.0, self.free - time.monotonic()))
        assert self.port is not None, "http server is not launched, port is None"
        return "127.0.0.1", self.port


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Ray prints on stdout
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
    actors = {}
    answers.write("ready\n")
    for line in sys.stdin:
        order = json.loads(line)
        namespace = order["namespace"]
        if "make" in order:
            name = order["make"]
            options = {"num_cpus": 0, "name": name, "namespace": namespace, **order.get("options", {})}
            actors[namespace, name] = (
                ray.remote(Server).options(**options).remote(**order.get("arguments", {}))
            )
        else:
            ray.kill(actors.pop((namespace, order["kill"])))
        answers.write("done\n")


if __name__ == "__main__":
    main()
