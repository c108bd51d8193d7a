"""A job that a launch script has submitted to Ray (``ray job submit``): its state and its log, by GET only."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

import msgspec

from liverl.causes.quiet.told import Listening, Told
from liverl.util.regular_file import read_text

DEFAULT = "http://127.0.0.1:8265"  # of Ray's dashboard, which serves the jobs' interface
LIVE = ("PENDING", "RUNNING")
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # variables that name a cluster, as Ray reads them
TIMEOUT = 5.0  # seconds for one answer
MOST = 64 << 20  # bytes of a job's log that are kept: its last ones, beside
HEAD = 8 << 20  # its first ones, where the number of all steps stands
_CHUNK = 1 << 20
_LINE_END = re.compile(rb"(?<!\\)(?:\\\\)*\\n")  # in a text of JSON
LEFT_OUT = "[the middle of the log is left out]\n"


class RayJobError(Exception):
    """Ray does not tell a job's state; the text says why. ``gone``: nobody listens at its address, or it does not know
    the job; otherwise it may answer later."""

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class RayJob(msgspec.Struct, frozen=True):
    """``state``: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED; ``message``: Ray's words on it."""

    state: str
    message: str = ""

    @property
    def lives(self) -> bool:
        """Whether it may still train."""
        return self.state in LIVE


def address_of(printed: str) -> str:
    """Where to ask: the address that the script printed, else that of the environment, else Ray's default."""
    named = [printed, *(os.environ.get(name, "") for name in _ADDRESSES)]
    return next((one for one in named if one.startswith(("http://", "https://"))), DEFAULT).rstrip("/")


def job_state(job: str, printed: str = "") -> RayJob:
    """What Ray says of the job with this submission id. ``printed``: the address that the script has printed.

    Raises:
        RayJobError: nothing answers there, the answer is refused, or Ray does not know the job.
    """
    found = _get(f"{address_of(printed)}/api/jobs/{quote(job, safe='')}", 1 << 20)
    state = found.get("status")
    if not isinstance(state, str):
        raise RayJobError(f"{address_of(printed)} answers, but not as Ray's interface for jobs does")
    return RayJob(state, " ".join(str(found.get("message") or "").split()))


def job_told(job: str, printed: str = "") -> Told:
    """What the log of the job tells about its steps.

    Raises:
        RayJobError: see ``job_state``.
    """
    listening = Listening()
    listening.hear(job_log(job, printed).encode(), 0)
    return listening.told


def job_log(job: str, printed: str = "") -> str:
    """What the job has printed; of more than ``MOST`` bytes the two ends.

    Raises:
        RayJobError: see ``job_state``.
    """
    url = f"{address_of(printed)}/api/jobs/{quote(job, safe='')}/logs"
    return str(_get(url, MOST, _ends_of_log).get("logs") or "")


def _ends_of_log(answer: IO[bytes], most: int) -> bytes:
    """The document with the log, without the middle of a log that is longer than ``most`` bytes: Ray sends all of it at
    once, and that of a training of some days may not fit into the memory."""
    begin = answer.read(min(HEAD, most))
    end, cut = bytearray(), False
    while chunk := answer.read(_CHUNK):
        end += chunk
        if len(end) > 2 * most:
            del end[:-most]
            cut = True
    if not cut and len(end) <= most:
        return begin + end
    del end[:-most]
    head = [line.end() for line in _LINE_END.finditer(begin)][-1:]
    tail = _LINE_END.search(end)
    left_out = json.dumps(LEFT_OUT)[1:-1].encode()
    return begin[: head[0] if head else 0] + left_out + end[tail.end() if tail is not None else 0 :]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Ray answers itself; elsewhere a token must not go."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follow no redirect."""


def _token(url: str) -> str:
    """Ray's token, for its default place and for the cluster that the environment names: an address that stands in a
    log alone gets none."""
    named = {urlsplit(os.environ.get(name, "")).hostname for name in _ADDRESSES}
    if os.environ.get("RAY_AUTH_MODE") != "token" or urlsplit(url).hostname not in named | LOOPBACK:
        return ""
    if token := os.environ.get("RAY_AUTH_TOKEN", ""):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        return read_text(path).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _whole(answer: IO[bytes], most: int) -> bytes:
    return answer.read(most)


def _get(url: str, most: int, read: Callable[[IO[bytes], int], bytes] = _whole) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
    where = url.split("/api/")[0]
    request = urllib.request.Request(url)
    if token := _token(url):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            found = json.loads(read(answer, most))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise RayJobError(f"Ray at {where} does not know the job", gone=True) from None
            raise RayJobError(f"Ray at {where} answered {error.code}") from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or error
        gone = isinstance(reason, ConnectionRefusedError)
        raise RayJobError(f"Ray at {where} does not answer: {reason}", gone=gone) from None
    if not isinstance(found, dict):
        raise RayJobError(f"{where} answers, but not as Ray's interface for jobs does")
    return found
