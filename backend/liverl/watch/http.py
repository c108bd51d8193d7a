"""GET without aiohttp, whose import costs the interface's process 150 ms. Blocking: call it in a thread."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

MOST = 8 << 20  # bytes of an answer that are read


class Refused(Exception):
    """No answer; the text says why, in words."""


def get(url: str, timeout: float, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """GET ``url``, which is HTTP; returns (status, body). ``timeout``: seconds for the connection and for each
    read. The environment's proxy variables are ignored, redirections are not followed.

    Raises:
        Refused: no answer.
    """
    parts = urlsplit(url)
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
        try:
            path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
            connection.request("GET", path, headers={"Connection": "close", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read(MOST).decode("utf-8", "replace")
        finally:
            connection.close()
    except ConnectionRefusedError:
        raise Refused("connection refused") from None
    except TimeoutError:
        raise Refused(f"no answer within {timeout:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Refused(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
