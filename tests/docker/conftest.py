"""Tests with a real Docker daemon, the one of DOCKER_HOST or the local one. Without it they are skipped, by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kit.docker_kit import daemon, docker, make_image
from kit.skips import skip_below


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_below(items, "tests/docker/", daemon, "no Docker daemon with Compose answers")


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """An image of which sandboxes are built."""
    tag = f"liverl-test-{uuid.uuid4().hex[:8]}:local"
    make_image(tag)
    yield tag
    docker("image", "rm", "-f", tag, check=False)
