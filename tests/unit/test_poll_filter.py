"""Which lines of a replica's access log are the backend's own polls."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from liverl.util.poll_filter import PollFilter, hide_polls

UVICORN = '%s - "%s %s HTTP/%s" %d'


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("test.poll_filter")
    yield found
    found.filters.clear()
    found.handlers.clear()


@pytest.mark.parametrize(
    ("method", "path", "status", "written"),
    [
        ("GET", "/health", 200, False),
        ("GET", "/metrics", 200, False),
        ("GET", "/policy_version?x=1", 200, False),
        ("GET", "/metrics", 401, True),
        ("GET", "/health", 503, True),
        ("POST", "/health", 200, True),
        ("GET", "/healthy", 200, True),
        ("GET", "/v1/models", 200, True),
        ("POST", "/v1/chat/completions", 200, True),
        ("GET", "/health", "200", True),
        ("POST", "/inference/v1/generate", 200, False),
        ("POST", "/v1/chat/completions/render", 200, False),
        ("POST", "/v1/chat/completions/derender", 200, False),
        ("POST", "/detokenize", 200, False),
        ("POST", "/inference/v1/generate", 400, True),
        ("GET", "/inference/v1/generate", 200, True),
    ],
)
def test_only_successful_polls_are_dropped(
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    status: object,
    written: bool,
) -> None:
    hide_polls(logger.name)
    with caplog.at_level(logging.INFO, logger.name):
        logger.info(UVICORN.replace("%d", "%s"), "127.0.0.1:5", method, path, "1.1", status)
    assert bool(caplog.records) == written


def test_other_records_pass(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    hide_polls(logger.name)
    with caplog.at_level(logging.INFO, logger.name):
        logger.info("GET /health")
        logger.info("%(path)s", {"path": "/health"})
        logger.info("%s %s", "GET", "/health")
    assert len(caplog.records) == 3


def test_it_is_added_once(logger: logging.Logger) -> None:
    hide_polls(logger.name)
    hide_polls(logger.name)
    assert [type(known) for known in logger.filters] == [PollFilter]
