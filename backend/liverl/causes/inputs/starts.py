"""A start that hung until somebody interrupted it: the interrupt is not its cause. Pure."""

from __future__ import annotations

import re

import msgspec

from liverl.causes.finding import Explanation
from liverl.util.ages import ago, clock

HANG_AT_START = "start-hangs"
INTERRUPTED = frozenset(("interrupted", "keyboard-interrupt"))
_FRAME = re.compile(
    r'File "(?P<path>[^"\n]{1,400})", line (?P<line>\d{1,7}), in (?P<name>[^\n]{1,120})(?:\n\s+(?P<code>[^\n]{1,300}))?'
)
# As Ray's and Abseil's handlers of signals print it, with the Unix time
_SIGNAL = re.compile(r"\b(SIG(?:TERM|INT|HUP)) received at time=(\d{9,11})\b")
# vLLM's handler of a signal that asks it to stop while it starts: nobody pressed Ctrl-C. That is the last frame.
_ASKED = re.compile(r'raise KeyboardInterrupt\("terminated"\)')
_HANDLER = "signal_handler"
SILENT_S = 120.0  # seconds without a line that a start does not take where nothing is loaded or built
_RAY = (
    "Read raylet.out and gcs_server.out in the session's folder (/tmp/ray/session_latest/logs). Usual reasons: Ray "
    "processes of an earlier run (ray stop), more CPUs claimed than the container has "
    "(ray_kwargs.ray_init.num_cpus), a full /tmp or /dev/shm, a proxy for local addresses (no_proxy)."
)
# What a start waits in, the most telling first: a call in the traceback, its name for people, what to do, and a command
_WAITS: tuple[tuple[re.Pattern[str], str, str, str], ...] = (
    (
        re.compile(r"\bray\.init\(|\bin connect\b[\s\S]{0,200}CoreWorker\("),
        "ray.init()",
        _RAY,
        "tail -n 50 /tmp/ray/session_latest/logs/raylet.out /tmp/ray/session_latest/logs/gcs_server.out",
    ),
    (
        re.compile(r"\binit_process_group\(|\bTCPStore\(|\brendezvous\("),
        "init_process_group",
        "A rank did not connect: compare MASTER_ADDR, MASTER_PORT and the number of ranks of each host, and the "
        "network between them (NCCL_SOCKET_IFNAME).",
        'ss -ltnp | grep "$MASTER_PORT"',
    ),
    (
        re.compile(r"\b(?:snapshot_download|hf_hub_download|load_dataset|from_pretrained)\("),
        "the download or load of a model or dataset",
        "Check that the Hub can be reached (HF_ENDPOINT, proxies), or set HF_HUB_OFFLINE=1 with a local copy. "
        "If a process died during a download, remove its lock from the folder .locks of the cache.",
        "curl -sSI https://huggingface.co | head -1",
    ),
    (
        re.compile(r"\bray\.get\(|\bray\.wait\("),
        "ray.get()",
        "An actor did not answer: ray status shows which resources are missing, and ray summary actors shows which "
        "actor has not started.",
        "ray status; ray summary actors",
    ),
)


def _after_silence(cause: Explanation, signal: str, seconds: float) -> Explanation:
    """The finding for a start that a signal ended, ``seconds`` after the last line."""
    if seconds < SILENT_S:
        return cause
    return msgspec.structs.replace(
        cause,
        id=HANG_AT_START,
        title=f"the start printed nothing for {ago(seconds)}, and was then ended by {signal}",
        cause="No step was made, and the log has no error before the signal: the start waited for something that did "
        "not come, until somebody, a time limit or a parent process ended it.",
        fix="Start it again. While it waits, ray status shows resources that are asked for and missing (more CPUs, by "
        "ray_kwargs.ray_init.num_cpus, or GPUs), and py-spy dump shows where each process waits.",
        command="ray status; py-spy dump --pid PID",
    )


def interrupted_start(cause: Explanation, traceback: str, last: float | None) -> Explanation:
    """The finding for an interrupt before the first step: it names the call that hung. ``traceback``: of the log, from
    the interrupt on; ``last``: Unix time of the last line before it, None if no stamp tells."""
    if (ended := _SIGNAL.search(traceback)) is not None and last is not None:
        return _after_silence(cause, ended[1], float(ended[2]) - last)
    frames = list(_FRAME.finditer(traceback))
    found = next((one for one in _WAITS if one[0].search(traceback)), None)
    if found is None and not frames:
        return cause
    if frames and frames[-1]["name"] == _HANDLER:
        frames.pop()
    deepest = frames[-1] if frames else None
    where = "" if deepest is None else f" ({deepest['path']}:{deepest['line']} in {deepest['name']})"
    name = found[1] if found is not None else f"{deepest['name'] if deepest is not None else 'a call'}"
    since = f" since {clock(last)}" if last is not None else ""
    if _ASKED.search(traceback) is not None:
        return msgspec.structs.replace(
            cause,
            title="SIGTERM ended vLLM's server while it started",
            cause=f"The server was asked to stop before it was up: its log has no error, and it was in {name}{where}.",
            fix="Look for who stopped it: a user, a script that waited too short a time for the server, a time limit, "
            "or a parent process that ended. Give the start more time if it loads or compiles.",
            command="",
        )
    return msgspec.structs.replace(
        cause,
        id=HANG_AT_START,
        title=f"{name} had not returned when the start was interrupted",
        cause=f"The start waited in {name}{since}{where} and did not continue: no step was made, and the log has no "
        "error before the interrupt. Somebody pressed Ctrl-C or sent SIGINT because the start hung, so "
        "KeyboardInterrupt is not the cause.",
        fix=found[2]
        if found is not None
        else "Start it again. When it hangs, run py-spy dump to see where each process waits.",
        command=found[3] if found is not None else "py-spy dump --pid PID",
    )
