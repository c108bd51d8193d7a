"""Tests with a real Slurm on this machine. Where none can be started they are skipped, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import net_hosts
from kit.skips import skip_below
from kit.slurm import Slurm, refused


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_below(items, "tests/slurm/", refused, "this machine starts no Slurm")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """A cluster with one node."""
    made = Slurm(tmp_path / "slurm")
    yield made
    made.end()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[Slurm]:
    """A cluster with a node on each of two hosts."""
    if why := net_hosts.refused():
        pytest.skip(f"this machine makes no hosts of namespaces: {why}")
    hosts = net_hosts.Hosts(tmp_path, 2)
    try:
        made = Slurm(tmp_path / "slurm", hosts, 2)
        yield made
        made.end()
    finally:
        hosts.end()
