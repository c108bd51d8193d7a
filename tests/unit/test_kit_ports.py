"""Ports that tests hand out."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from kit import ports

TESTS = Path(__file__).parents[1]
KERNELS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Folders whose tests start processes on a port that they have picked.
OF_PROCESSES = ("hosts", "kit", "process", "stack")


def test_no_port_is_handed_out_twice() -> None:
    given = ports.free_ports(200)
    assert len(set(given)) == 200 and all(ports.FIRST <= port < ports.LAST for port in given)


@pytest.mark.skipif(not KERNELS_RANGE.exists(), reason="needs Linux")
def test_the_kernel_gives_none_of_them_to_a_connection() -> None:
    assert int(KERNELS_RANGE.read_text().split()[0]) >= ports.LAST


def test_one_on_which_somebody_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = ports.free_port()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", taken))
        monkeypatch.setattr(ports, "_next", iter(range(taken - ports.FIRST, 10**6)))
        assert ports.free_port() > taken


def picks(source: str) -> list[str]:
    """What picks a port of the kernel's range and lets go of it."""
    return re.findall(r"procfs\.free_port\(|procfs import .*\bfree_port\b|def _?free_ports?\(", source)


def test_nobody_lets_go_of_a_port_that_the_kernel_gives_to_the_next() -> None:
    assert picks("port = procfs.free_port()") and picks("def free_port() -> int:")
    found = []
    for folder in OF_PROCESSES:
        for path in sorted((TESTS / folder).rglob("*.py")):
            if path != TESTS / "kit" / "ports.py" and picks(path.read_text()):
                found.append(str(path.relative_to(TESTS)))
    assert found == [], "use kit.ports.free_port"
