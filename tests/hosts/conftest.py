"""Tests with several hosts, which are namespaces of this machine. Where it makes none they are skipped, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.net_hosts import Hosts, refused
from kit.skips import skip_below
from kit.verl_fixtures import launch, smoke

__all__ = ["launch", "smoke"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_below(items, "tests/hosts/", refused, "this machine makes no hosts of namespaces")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts."""
    made = Hosts(tmp_path, 2)
    yield made
    made.end()
