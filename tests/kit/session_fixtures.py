"""A host of sessions with one scripted replica, as fixtures. A test module says by ``script`` what the model writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.session_host import SessionHost
from kit.token_replica import TokenReplica


@pytest.fixture
async def replica(request: pytest.FixtureRequest) -> AsyncIterator[TokenReplica]:
    """A replica that listens."""
    scripted = TokenReplica(request.module.script)
    scripted.url = await scripted.start()
    yield scripted
    scripted.gate.set()
    await scripted.stop()


@pytest.fixture
async def host(tmp_path: Path, replica: TokenReplica) -> AsyncIterator[SessionHost]:
    """The sessions, which use this replica."""
    sessions = SessionHost(tmp_path)
    sessions.urls = [replica.url]
    await sessions.start()
    yield sessions
    await sessions.stop()
