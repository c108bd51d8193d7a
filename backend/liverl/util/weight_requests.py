"""Counts the requests with which somebody may have changed the weights of ``vllm serve``.

vLLM has no digest of its weights. What ``token_guard`` can see is each request that it passes on: those below, which
vLLM has in its development mode and with LoRA adapters that are loaded at run time. They are added to ``/metrics``,
where liverl reads them. Standard library only, as ``token_guard``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

ROUTES = frozenset(
    {
        "/init_weight_transfer_engine",
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/update_weight_version",
        "/collective_rpc",  # any method of the workers, such as reload_weights
        "/sleep",  # level 2 drops the weights
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    }
)
METRICS = "/metrics"
COUNT, LAST = "liverl:weight_requests_total", "liverl:weight_request_time_seconds"


class WeightRequests:
    """The requests since the server's start, by route."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._last = 0.0  # Unix time

    def watching(self, scope: Message, send: Send) -> tuple[Message, Send]:
        """Return what the application gets in place of ``scope`` and ``send``: its answers to ``ROUTES`` are counted,
        its metrics hold the counts."""
        path = scope["path"]
        if path in ROUTES:
            return scope, self._counting(path, send)
        if path == METRICS and scope["method"] == "GET":
            headers = [pair for pair in scope["headers"] if pair[0].lower() != b"accept-encoding"]
            return {**scope, "headers": headers}, self._adding(send)
        return scope, send

    def text(self) -> str:
        """The counts in Prometheus' text format; empty without a request."""
        if not self._counts:
            return ""
        lines = [
            f"# HELP {COUNT} Accepted requests that can have changed the weights.",
            f"# TYPE {COUNT} counter",
            *(f'{COUNT}{{route="{route}"}} {number}' for route, number in sorted(self._counts.items())),
            f"# HELP {LAST} Unix time of the last of them.",
            f"# TYPE {LAST} gauge",
            f"{LAST} {self._last:.3f}",
        ]
        return "\n".join(lines) + "\n"

    def _counting(self, route: str, send: Send) -> Send:
        async def counted(message: Message) -> None:
            # 3xx and 4xx: there is no such route, or it refused the request. After a 5xx a part may have happened.
            if message["type"] == "http.response.start" and not 300 <= message["status"] < 500:
                self._counts[route] += 1
                self._last = time.time()
            await send(message)

        return counted

    def _adding(self, send: Send) -> Send:
        plain = False

        async def added(message: Message) -> None:
            nonlocal plain
            more = self.text().encode()
            if message["type"] == "http.response.start" and more:
                headers = [(name.lower(), value) for name, value in message["headers"]]
                kinds = [value for name, value in headers if name == b"content-type"]
                # OpenMetrics, which ends with a mark, is left alone.
                plain = message["status"] == 200 and [k[:10] for k in kinds] == [b"text/plain"]
                if plain:
                    kept = [pair for pair in headers if pair[0] != b"content-length"]
                    message = {**message, "headers": kept}
            elif message["type"] == "http.response.body" and plain and not message.get("more_body"):
                message = {**message, "body": message.get("body", b"") + more}
            await send(message)

        return added
