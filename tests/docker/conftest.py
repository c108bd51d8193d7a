"""Tests with a real Docker daemon, the one of DOCKER_HOST or the local one. Without it they are skipped, by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kit.docker_kit import daemon, docker, make_image


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if "tests/docker/" in str(item.path)]
    why = daemon() if ours else ""
    for item in ours:
        if why:
            item.add_marker(pytest.mark.skip(reason=f"no Docker daemon with Compose answers: {why}"))


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """An image of which sandboxes are built."""
    tag = f"liverl-test-{uuid.uuid4().hex[:8]}:local"
    make_image(tag)
    yield tag
    docker("image", "rm", "-f", tag, check=False)
