"""SGLang's router that somebody else started, asked by GET: whether it answers, and to which servers it routes."""

from __future__ import annotations

import msgspec

from liverl.util.decode import decode_loose_json
from liverl.watch.http import Refused, get
from liverl.watch.proxy import TIMEOUT, ProxyFacts
from liverl.watch.replicas import root

HEALTH = "/liveness"  # of the router itself; /health asks its servers
# Of sgl-model-gateway and of routers before it: {"workers": [{"url": ...}]} and {"urls": [...]}.
_WORKERS = ("/workers", "/list_workers")


def look(port: int, pid: int | None = None) -> ProxyFacts:
    """The router on ``port`` of this host. ``pid``: its process."""
    address = f"http://127.0.0.1:{port}"
    facts = ProxyFacts(port, address, None, pid=pid, engine="sglang")
    try:
        status, _ = get(f"{address}{HEALTH}", TIMEOUT)
    except Refused as error:
        return msgspec.structs.replace(facts, problem=f"GET {HEALTH}: {error}", answered=False)
    problem = None if status in (200, 404) else f"GET {HEALTH} returned {status}"  # 404: of an older one
    urls, why = _urls(address)
    return msgspec.structs.replace(facts, problem=problem, backends=urls, replicas=urls, config_problem=why)


def _urls(address: str) -> tuple[tuple[str, ...], str]:
    """The servers of a router, and why they are not known; "" if they are."""
    why = ""
    for path in _WORKERS:
        try:
            status, text = get(f"{address}{path}", TIMEOUT)
        except Refused as error:
            return (), f"GET {path}: {error}"
        if status == 200 and (urls := urls_in(text)) is not None:
            return urls, ""
        why = f"GET {path} returned {status}: its servers are not known"
    return (), why


def urls_in(text: str) -> tuple[str, ...] | None:
    """The servers in a router's answer, each once; None if it is of another form. Pure."""
    try:
        document = decode_loose_json(text)
    except (ValueError, RecursionError):
        return None
    found = document.get("workers", document.get("urls")) if isinstance(document, dict) else None
    if not isinstance(found, list):
        return None
    urls = [one.get("url") if isinstance(one, dict) else one for one in found]
    return tuple(dict.fromkeys(root(url) for url in urls if isinstance(url, str) and url.startswith("http")))
