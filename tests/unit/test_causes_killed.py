"""Nothing that a process says of its requests, or that its start complained of, is why SIGKILL ended it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from liverl.causes.finding import Exit, Verdict
from liverl.causes.read.reading import read_log
from liverl.causes.verdict.judge import judge

# Of LiteLLM 1.106.2 on a GPU host, which was killed by hand between two requests.
RECORDED = Path(__file__).parents[1] / "data/gpu_logs/proxy_killed_from_outside.log"
COMPLAINT = "10:00:01 - LiteLLM Proxy:ERROR: proxy_server.py:2454 - The packaged pages are incomplete.\n"
STARTED = "INFO:     Application startup complete.\n"
REFUSED = (
    "Traceback (most recent call last):\n"
    '  File "/s/litellm/llms/http_handler.py", line 564, in _raise_masked_async_error\n'
    "    raise MaskedHTTPStatusError(e, message=_text, text=_text) from None\n"
    "litellm.llms.custom_httpx.http_handler.MaskedHTTPStatusError: Client error '400 Bad Request' for url 'http://r/v1'\n"
)
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.12 GiB is free.\n"
)


def verdict(log: Path, **exit_: int) -> Verdict:
    return judge([read_log(log, log.name)], [Exit("proxy", log.name, **exit_)])


def named(found: Verdict) -> str:
    return "" if found.cause is None else found.cause.id


def test_a_recorded_proxy_was_killed_from_outside() -> None:
    found = verdict(RECORDED, signal=signal.SIGKILL)
    assert found.cause is not None and named(found) == "killed"
    assert "Packaged UI" not in found.cause.title and "400" not in found.cause.title


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (STARTED, "killed"),
        (COMPLAINT + STARTED, "killed"),
        (STARTED + REFUSED, "killed"),
        (COMPLAINT + STARTED + 3 * REFUSED, "killed"),
        (COMPLAINT, "unknown"),  # it may not have survived it
        (STARTED + COMPLAINT, "unknown"),
        (STARTED + NO_MEMORY, "cuda-oom"),
        (COMPLAINT + STARTED + REFUSED + NO_MEMORY, "cuda-oom"),
    ],
)
def test_what_explains_a_kill(tmp_path: Path, text: str, cause: str) -> None:
    log = tmp_path / "proxy.log"
    log.write_text(text)
    assert named(verdict(log, signal=signal.SIGKILL)) == cause
