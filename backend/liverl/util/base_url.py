"""The URL of a server from its host and port."""

from __future__ import annotations


def base_url(host: str, port: int) -> str:
    """``http://host:port``; an IPv6 address gets brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
