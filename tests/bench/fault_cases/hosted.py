"""What the cases over sessions share: their servers in this process, with a scripted replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from fault_cases.base import Outcome, Part

PART_S = 20.0  # one that takes longer hangs
USER = {"role": "user", "content": "What does the file say?"}
Work = Callable[[SessionHost, TokenReplica], Awaitable[list[Part]]]


def reply(_prompt: str, turn: int) -> str:
    """What the model writes in its turn, from 0."""
    return f"Reply {turn}, and some more words."


def hosted(folder: Path, work: Work, **settings: Any) -> list[Part]:
    """``work`` with sessions in ``folder`` that listen."""

    async def main() -> list[Part]:
        replica = TokenReplica(reply)
        url = await replica.start()
        host = SessionHost(folder, body_limit=32 << 20)
        host.urls = [url]
        host.settings = settings
        await host.start()
        try:
            return await work(host, replica)
        finally:
            await host.stop()
            replica.gate.set()
            await replica.stop()

    return asyncio.run(main())


async def part(name: str, work: Awaitable[Outcome]) -> Part:
    """One fault; what it raises, or does not end, is its problem."""
    try:
        async with asyncio.timeout(PART_S):
            return Part(name, await work)
    except TimeoutError:
        return Part(name, problem=f"no end within {PART_S:g} s")
    except Exception as error:
        return Part(name, problem=" ".join(f"{type(error).__name__}: {error}".split())[:300])


async def turns(host: SessionHost, opened: dict[str, Any], count: int = 2) -> list[dict[str, Any]]:
    """``count`` turns of one conversation; its messages."""
    messages: list[dict[str, Any]] = [USER]
    for _ in range(count):
        status, body = await host.chat(opened, *messages)
        assert status == 200, f"HTTP {status}: {body}"
        messages += [body["choices"][0]["message"], {"role": "user", "content": "go on"}]
    return messages


def sampled(rows: list[dict[str, Any]]) -> list[int]:
    """The ids that the model has sampled, of all rows in their order."""
    return [
        token
        for row in rows
        for token, mask in zip(
            row["traj_acc_ids"][-len(row["traj_response_mask"]) :], row["traj_response_mask"], strict=True
        )
        if mask
    ]


async def rows_of(host: SessionHost, name: str) -> list[dict[str, Any]] | None:
    """The rows of a session that is ended now; None if there is no such session."""
    status, body = await host.control("POST", f"/sessions/{name}/finish")
    if status in (404, 409):
        return None
    assert status == 200, f"HTTP {status}: {body}"
    return list(body["rows"])
