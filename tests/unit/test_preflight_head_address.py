"""Whether other hosts can reach the Ray head of a run on several."""

from __future__ import annotations

import pytest

from liverl.preflight.head_address import check

OWN = frozenset({"127.0.0.1", "::1", "10.0.0.1", "10.1.0.1"})


@pytest.mark.parametrize(
    ("address", "own", "outcome", "words"),
    [
        ("10.1.0.1", OWN, "ok", "listens on 10.1.0.1"),
        ("10.9.0.1", OWN, "fail", "10.9.0.1 is not an address of this host, which has 10.0.0.1, 10.1.0.1"),
        ("127.0.0.1", OWN, "fail", "no default route"),
        ("10.9.0.1", frozenset({"127.0.0.1"}), "fail", "none but loopback"),
    ],
)
def test_the_address_is_this_hosts(address: str, own: frozenset[str], outcome: str, words: str) -> None:
    found = check(address, own)
    assert (found.status, words in found.text) == (outcome, True), found.text
