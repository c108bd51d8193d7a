"""Requests that Claude Code 2.1.197 sent (texts and tools shortened): a tool, two sub-agents at once, a compaction."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.embedded.tokenizer import decode

RECORDED = Path(__file__).parents[1] / "data" / "claude_code_requests.json"
MAIN, SUBS, COMPACTION, AFTER = (0, 1, 6), ((2, 4), (3, 5)), 7, 8


class Thinker(TokenReplica):
    """Parses ``<think>`` as engines with a reasoning parser do."""

    async def _derender(self, request: web.Request) -> web.Response:
        body = json.loads((await super()._derender(request)).body)
        message = body["choices"][0]["message"]
        thought, found, rest = (message["content"] or "").partition("</think>")
        if found:
            message |= {"reasoning_content": thought.removeprefix("<think>"), "content": rest}
        return web.json_response(body)


async def test_what_claude_code_sends_gives_one_row_per_conversation(tmp_path):
    requests = json.loads(RECORDED.read_text())
    asked: list[int] = []
    replica = Thinker(lambda _prompt, _turn: requests[asked[-1]]["reply"], context=200_000)
    host = SessionHost(tmp_path)
    host.models = ("claude-*",)  # it was not told the served name
    host.urls = [await replica.start()]
    await host.start()
    opened = await host.open()

    async def send(number: int) -> None:
        headers = {"x-api-key": opened["key"]}
        if requests[number]["agent"]:
            headers["x-claude-code-agent-id"] = requests[number]["agent"]
        asked.append(number)
        url = f"{opened['anthropic_url']}/v1/messages?beta=true"
        async with host.http.post(url, json=requests[number]["body"], headers=headers) as response:
            events = (await response.read()).decode()
            assert response.status == 200 and events.rstrip().endswith('{"type":"message_stop"}'), events

    async with asyncio.timeout(60):
        for number in range(len(requests)):
            await send(number)
    rows = await host.finish()
    await host.stop()
    await replica.stop()

    def trained(row: dict[str, Any]) -> str:
        behind = row["traj_acc_ids"][row["initial_prompt_token_len"] :]
        return decode(token for token, bit in zip(behind, row["traj_response_mask"], strict=True) if bit)

    expected = [*SUBS, MAIN, (COMPACTION,), (AFTER,)]
    assert [row["kind"] for row in rows] == ["sub", "sub", "main", "rewrite", "rewrite"]
    assert [trained(row) for row in rows] == [
        "".join(requests[number]["reply"] + "<|im_end|>" for number in numbers) for numbers in expected
    ]
    for row, numbers in zip(rows, expected, strict=True):
        for number in numbers:
            prompt = replica.prompts[number]
            assert row["traj_acc_ids"][: len(prompt)] == prompt, f"request {number} diverged"
