"""Reads failed requests in records of logs: of servers that answered them, and of clients that were refused. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from liverl.logs.record import Record
from liverl.util.late_pattern import late_pattern

MOST_TEXT = 300  # characters of a message that are kept
_SEARCHED = 4096  # characters of a record in which a request is looked for


class Response(NamedTuple):
    """``status``: 200..599; ``request``: method and path, "" if the record does not say; ``message``: why it failed,
    "" if the record does not say; ``ours``: the writer of the record is the client."""

    status: int
    request: str
    message: str = ""
    ours: bool = False


# uvicorn (vLLM, LiteLLM), aiohttp and the common log format: '1.2.3.4:5 - "POST /v1/messages HTTP/1.1" 404 Not Found'
_ACCESS = late_pattern(
    r'"(?P<method>[A-Z]{3,7}) (?P<path>/[^\s"?]{0,200})[^\s"]* HTTP/\d(?:\.\d)?" (?P<status>[2-5]\d\d)\b'
)
# Of the sessions: '"POST /sess/t-1/v1/messages HTTP/1.1" 400, 0.003 s: n is not supported'
_WHY = late_pattern(r", \d+\.\d+ s(?:; \d+ more succeeded before)?: (?P<why>[^\n]{1,300})")
# LiveRL's proxy: "liverl-proxy: 404 POST /v1/messages trial=t replica=None why"
_PROXY = late_pattern(
    r"^liverl-proxy: (?P<status>[45]\d\d) (?P<method>[A-Z]{3,7}) (?P<path>\S{1,200})"
    r"(?: trial=\S{1,200} replica=\S{1,200})?(?: (?P<why>[^\n]{1,300}))?"
)
# Clients: openai and anthropic for Python, httpx
_SDK = late_pattern(r"Error code: (?P<status>[45]\d\d) - (?P<body>\{[^\n]{1,2000})")
_SDK_MESSAGE = late_pattern(
    r"""['"]message['"]: (?P<quote>['"])(?P<message>.{1,600}?)(?<!\\)(?P=quote)[,}]"""
)
_HTTPX = late_pattern(
    r'HTTP Request: (?P<method>[A-Z]{3,7}) https?://[^/\s]{1,200}(?P<path>/[^\s"?]{0,200})\S* '
    r'"HTTP/\d(?:\.\d)? (?P<status>[2-5]\d\d)\b'
)
_LITELLM = late_pattern(
    r"litellm\.proxy\.[\w.]{1,80}\(\): Exception occured - (?:litellm_call_id=\S{1,80} - )?"
)
_POLLED = (
    "GET",
    "HEAD",
    "OPTIONS",
)  # health checks, scrapers, lists of models: their failures have rules of their own
_ID = late_pattern(r"/[^/\s]*\d[^/\s]*")  # a part of a path with a digit: the name of a session or of a trial
_NAMED = late_pattern(r"\bsession '?[^\s':,]*\d[^\s':,]*'?")  # a session is called like its trial
_VERSION = late_pattern(r"/v\d")


def response_of(record: Record) -> Response | None:
    """The request that a record is about, None if it is about none, or about a poll."""
    text = record.text
    if "HTTP/" in text:
        match = _ACCESS.search(text, 0, _SEARCHED)
        if match is not None:
            why = _WHY.match(text, match.end())
            return _response(match, ours=False, message="" if why is None else why["why"])
        match = _HTTPX.search(text, 0, _SEARCHED)
        return None if match is None else _response(match, ours=True)
    if text.startswith("liverl-proxy: "):
        match = _PROXY.match(text)
        return None if match is None else _response(match, ours=False, message=match["why"] or "")
    if "Error code: " not in record.whole[:_SEARCHED]:
        return None
    match = _SDK.search(record.whole, 0, _SEARCHED)
    if match is None:
        return None
    said = _SDK_MESSAGE.search(match["body"])
    return Response(int(match["status"]), "", short(said["message"] if said else match["body"]), ours=True)


def _response(match: re.Match[str], *, ours: bool, message: str = "") -> Response | None:
    if match["method"] in _POLLED:
        return None
    path = "".join(
        part if _VERSION.fullmatch(part) else "/*" if _ID.fullmatch(part) else part for part in _parts(match)
    )
    return Response(int(match["status"]), f"{match['method']} {path}", short(message), ours)


def _parts(match: re.Match[str]) -> list[str]:
    return [f"/{part}" for part in match["path"].split("/")[1:]]


def message_of(record: Record) -> str:
    """What an error says: the exception that ended it, or its first line; "" if it says nothing."""
    if record.raised:
        return short(record.raised[-1].text.partition("\n")[0])
    return short(_LITELLM.sub("", record.text[:_SEARCHED], count=1))


def nameless(message: str) -> str:
    """Why requests failed without the name of the one session that said so: ``a session is finished``."""
    return _NAMED.sub("a session", message)


def short(text: str) -> str:
    """On one line, and not longer than ``MOST_TEXT``."""
    text = " ".join(text.split())
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
