"""verl's logger that is given what only ``print`` takes."""

from __future__ import annotations

import logging

import pytest

from liverl.verl_runtime import standalone


def test_a_line_with_flush_is_logged_as_of_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, standalone.LOGGER):
        logging.getLogger(standalone.LOGGER).info("%d replicas", 2, flush=True)  # type: ignore[call-arg]
        logging.getLogger(standalone.LOGGER).warning("as ever")
    told = [(record.getMessage(), record.filename) for record in caplog.records]
    assert told == [
        ("2 replicas", "test_verl_runtime_standalone.py"),
        ("as ever", "test_verl_runtime_standalone.py"),
    ]


def test_another_logger_is_as_it_was() -> None:
    with pytest.raises(TypeError, match="flush"):
        logging.getLogger("verl.other").warning("x", flush=True)  # type: ignore[call-arg]
