"""A job that a launch script has submitted to Ray (``ray job submit``): its state and its log, by GET only."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from liverl.causes.quiet.told import Listening, Told
from liverl.util.decode import decode_loose_json
from liverl.util.regular_file import read_text

DEFAULT = "http://127.0.0.1:8265"  # of Ray's dashboard, which serves the jobs' interface
LIVE = ("PENDING", "RUNNING")
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))
_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # variables that name a cluster, as Ray reads them
TIMEOUT = 5.0  # seconds for one answer
MOST = 64 << 20  # bytes of a job's log that are kept: its last ones, beside
HEAD = 8 << 20  # its first ones, where the number of all steps stands
LOOK_S = 15.0  # seconds between two looks at the steps of a job,
PER_SECOND = 256 << 10  # more if only the whole log is sent: then so many bytes of it per second at most,
SELDOM_S = 900.0  # but not more than this
TAIL_LINES, TAIL = 1000, 4 << 20  # last lines of a log that are asked for, and bytes of them
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
    """``state``: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED; ``message``: Ray's words on it; ``node``: id of the
    node that runs its driver and has its log, empty if Ray does not tell."""

    state: str
    message: str = ""
    node: str = ""

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
    node = found.get("driver_node_id")
    return RayJob(
        state, " ".join(str(found.get("message") or "").split()), node if isinstance(node, str) else ""
    )


class JobSteps:
    """The steps of a running job by its log. All of the log is asked for once, as its beginning has the number of all
    steps; then only its last lines. Ray's interface for jobs sends a log only as a whole: where Ray's interface for
    logs does not send the last lines, the whole log is asked for the more seldom the longer it is."""

    def __init__(self, job: str, printed: str = "") -> None:
        self._job, self._printed = job, printed
        self._told = Told()
        self._due = 0.0  # Unix or monotonic seconds, of the clock of ``look``

    def look(self, now: RayJob, at: float) -> Told:
        """What is known at the time ``at``, in seconds of any clock. ``now``: what Ray says of the job.

        Raises:
            RayJobError: see ``job_state``.
        """
        if at < self._due:
            return self._told
        tail = self._tail(now.node) if self._due and now.node else None
        if tail is None:
            log = job_log(self._job, self._printed).encode()
            self._due = at + min(max(LOOK_S, len(log) / PER_SECOND), SELDOM_S)
            self._told = _heard(log)
        else:
            self._due = at + LOOK_S
            told = _heard(tail[tail.find(b"\n") + 1 :])
            if told.step is not None:
                self._told = msgspec.structs.replace(
                    self._told, step=told.step, total=told.total or self._told.total
                )
        return self._told

    def _tail(self, node: str) -> bytes | None:
        """The last lines of the log; None if Ray does not send them."""
        query = urlencode({"node_id": node, "submission_id": self._job, "lines": TAIL_LINES})
        url = f"{address_of(self._printed)}/api/v0/logs/file?{query}"
        try:
            return _opened(url, lambda answer: answer.read(TAIL))
        except RayJobError:
            return None


def _heard(log: bytes) -> Told:
    listening = Listening()
    listening.hear(log, 0)
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
    where = url.split("/api/")[0]
    try:
        found = decode_loose_json(_opened(url, lambda answer: read(answer, most)))
    except ValueError as error:
        raise RayJobError(f"Ray at {where} does not answer: {error}") from None
    if not isinstance(found, dict):
        raise RayJobError(f"{where} answers, but not as Ray's interface for jobs does")
    return found


def _opened(url: str, read: Callable[[IO[bytes]], bytes]) -> bytes:
    """What ``read`` makes of the answer.

    Raises:
        RayJobError: there is none, or it is refused.
    """
    # A tenth of a backend's memory, of which one that has no such job needs nothing
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Ray answers itself; elsewhere a token must not go."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            """Follow no redirect."""

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
    where = url.split("/api/")[0]
    request = urllib.request.Request(url)
    if token := _token(url):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            return read(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise RayJobError(f"Ray at {where} does not know the job", gone=True) from None
            raise RayJobError(f"Ray at {where} answered {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        gone = isinstance(reason, ConnectionRefusedError)
        raise RayJobError(f"Ray at {where} does not answer: {reason}", gone=gone) from None
