"""Folders of tests that need what not every machine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest


def skip_below(items: Sequence[pytest.Item], folder: str, why: Callable[[], str], words: str) -> None:
    """Skip the tests below ``folder`` ("tests/docker/"), with ``words`` and the reason, where ``why`` gives one. It is
    asked only if there are such tests."""
    ours = [item for item in items if folder in str(item.path)]
    reason = why() if ours else ""
    for item in ours:
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"{words}: {reason}"))
