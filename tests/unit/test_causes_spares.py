"""The near misses of the catalogue can fail: a row whose pattern has lost a part fires on its own.

A row is asked only where its needle stands. So a near miss without the needle says nothing of the pattern, however wide
that has become.
"""

from __future__ import annotations

import re

import msgspec
import pytest

from liverl.causes import patterns
from liverl.causes.catalogue import by_id, rows
from liverl.causes.match import Matcher
from liverl.causes.signature import Signature
from liverl.logs.record import Record


def is_near(row: Signature) -> bool:
    """Whether the near miss holds the needle. Where nothing but one text is certain, so that little or nothing is left
    to refuse behind the needle, half of that text's words in a row are enough, or half of its only word."""
    if row.needle in row.spares:
        return True
    certain = patterns.literals(row.pattern)
    if len(certain) != 1 or row.needle not in certain[0]:
        return False
    words = certain[0].split()
    half = (len(words) + 1) // 2
    if len(words) < 2:
        half = (len(words[0]) + 1) // 2
        return words[0][:half] in row.spares or words[0][-half:] in row.spares
    return any(" ".join(words[at : at + half]) in row.spares for at in range(len(words) - half + 1))


def test_a_near_miss_holds_what_the_row_looks_for_first() -> None:
    far = {row.id: row.needle for row in rows() if not is_near(row)}
    assert far == {}, "write a near miss with the needle in it, which the pattern does not match"


def test_no_row_is_found_in_its_near_miss() -> None:
    """As logs are read: a pattern that begins with ``^`` is also tried where the name of an exception begins."""
    wrong = {}
    for row in rows():
        first, *more = row.spares.split("\n")
        if Matcher([row]).of(Record(0, 1, text=first, more=tuple(more))):
            wrong[row.id] = row.spares
    assert wrong == {}


# A pattern, as somebody might widen it, of a row whose near miss tells it.
WIDER = [
    ("gpu-memory-held", "on startup is less than desired GPU memory utilization \\("),
    ("vllm-hung-worker", r"TimeoutError: RPC call to (?P<method>[^\n]{1,60})"),
    (
        "vllm-argument",
        r": error: (?:unrecognized arguments: (?P<arguments>[^\n]{1,200})|argument [^\n]{1,200})",
    ),
    ("vllm-worker-ended", r"Worker proc (?P<name>[^\n]{1,60}) died unexpectedly"),
    ("verl-register-center", r"Failed to get register_center_actor(?: with name)? (?P<name>\S{1,120})"),
    (
        "verl-column-length",
        r"key (?P<name>\S{1,100}) length (?P<has>\S{1,20}) is not equal to (?:bsz|batch size)",
    ),
    ("ray-part-exited", r"(?P<part>\w{2,40}) \[exit code=(?P<code>-?\d{1,3})[\] ]"),
    ("ray-package-size", r"Package size \((?P<size>[^\n]{1,60})\) exceeds the maximum size of"),
    (
        "nccl-cuda-error",
        r"(?:NCCL WARN |Last error: ?\n)Cuda failure (?P<code>\d{0,6}) ?'(?P<what>[^'\n]{1,120})'",
    ),
    ("torchrun-child-crashed", r"failed \(exitcode: -(?P<signal>\d{1,2})\) local_rank: (?P<rank>\d{1,6})"),
    ("torchrun-stopped", r"SignalException: Process \d{1,10} got signal: (?P<number>\d{1,2})\b"),
    (
        "weight-not-loaded",
        r"Following weights were not initialized from checkpoint: \{?(?P<weights>[^\n]{1,160})",
    ),
    ("litellm-backend-down", r"Hosted_vllmException - Cannot connect to host\s"),
    (
        "docker-registry-silent",
        r"Error response from daemon: (?:Get|Head) \"?https?://(?P<host>[\w.:-]{1,200})/v2/",
    ),
    (
        "image-build-step-buildkit",
        r"process \"(?P<step>[^\n]{1,600}?)\" did not complete successfully: exit code: \d",
    ),
]


@pytest.mark.parametrize(("name", "pattern"), WIDER, ids=[name for name, _ in WIDER])
def test_a_pattern_that_lost_a_part_fires_on_its_near_miss(name: str, pattern: str) -> None:
    row = by_id()[name]
    assert re.search(pattern, row.fires), "it is no wider pattern of this row"
    assert re.search(pattern, row.spares)
    assert not re.search(row.pattern, row.spares)


@pytest.mark.parametrize(
    ("pattern", "needle", "spares", "near"),
    [
        (r"World size \((?P<n>\d{1,5})\) is larger", "World size (", "World size ({n}) is larger", True),
        (r"World size \((?P<n>\d{1,5})\) is larger", "World size (", "INFO world_size=8", False),
        ("no valid token left", "no valid token left", "DEBUG no valid token is needed", True),
        ("no valid token left", "no valid token left", "INFO tokens left: 4", False),
        (r"no valid token left: \d{1,3}", "no valid token left", "DEBUG no valid token left", True),
        (
            r"no valid token left.{0,9} in the batch",
            "no valid token left",
            "DEBUG no valid token in the batch",
            False,
        ),
        ("std::bad_alloc", "std::bad_alloc", "std::bad_cast", True),
        ("std::bad_alloc", "std::bad_alloc", "INFO a bad request", False),
    ],
)
def test_what_is_near(pattern: str, needle: str, spares: str, near: bool) -> None:
    row = msgspec.structs.replace(rows()[0], pattern=pattern, needle=needle, spares=spares)
    assert is_near(row) == near
