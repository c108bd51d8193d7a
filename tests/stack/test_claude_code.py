"""The real Claude Code against a session in front of a scripted replica: a tool, two sub-agents at once, a compaction.

npm installs it at the first use, beside the environments of the components.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.npm import installed
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica, call_text

from liverl.agents.claude_code import MODEL_VARIABLES
from liverl.embedded.tokenizer import decode

pytestmark = [pytest.mark.slow]

PACKAGE = "@anthropic-ai/claude-code"
ASKED = (
    "What do the notes say? FIRST QUESTION.",
    "/compact",
    "What did they say? LAST QUESTION.",
)


@pytest.fixture(scope="module")
def claude() -> Path:
    """The program."""
    return installed("claude-code", PACKAGE) / ".bin" / "claude"


def script(prompt: str, _turn: int) -> str:
    """What the model writes, by what the conversation holds."""
    asked = prompt.rsplit("<|im_start|>user\n", 1)[-1]
    if "LAST QUESTION" in asked:
        return "Seven, eleven and thirteen."
    if "Respond with TEXT ONLY" in asked:
        return "<analysis>Short.</analysis>\n<summary>The notes say 7, 11 and 13.</summary>"
    if "SUBTASK" in prompt and "FIRST QUESTION" not in prompt:
        name = prompt.split("SUBTASK: read ", 1)[1].split()[0]
        if f"content of {name}" in prompt:
            return f"ANSWER: {name} is read."
        return call_text("Bash", command=f"cat {name}", description=f"Read {name}")
    if "ANSWER: " in prompt:
        return "The notes say 7, 11 and 13."
    if "content of a.txt" in prompt:
        calls = [
            call_text(
                "Agent",
                description="Read",
                prompt=f"SUBTASK: read {name} now",
                subagent_type="general-purpose",
            )
            for name in ("b.txt", "c.txt")
        ]
        return "I ask two agents. " + "".join(calls)
    return "I look. " + call_text("Bash", command="cat a.txt", description="Read a.txt")


async def dialogue(program: Path, folder: Path, opened: dict[str, Any]) -> list[dict[str, Any]]:
    """Ask one question after another; the ``result`` of each."""
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (work / name).write_text(f"content of {name}\n")
    env = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "ANTHROPIC_BASE_URL": opened["anthropic_url"],
        "ANTHROPIC_API_KEY": opened["key"],
        **dict.fromkeys(("ANTHROPIC_MODEL", *MODEL_VARIABLES), "m"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    options = ["-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json"]
    with open(folder / "claude.err", "wb") as errors:
        process = await asyncio.create_subprocess_exec(
            str(program), *options, "--allowedTools", "Bash,Agent,Task",
            cwd=work, env=env, limit=1 << 26,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    results = []
    try:
        async with asyncio.timeout(300):
            for text in ASKED:
                said = {"type": "user", "message": {"role": "user", "content": text}}
                process.stdin.write(json.dumps(said).encode() + b"\n")
                while True:
                    line = await process.stdout.readline()
                    assert line, (folder / "claude.err").read_text()[-2000:]
                    event = json.loads(line)
                    if event["type"] == "result":
                        results.append(event)
                        break
            process.stdin.close()
            assert await process.wait() == 0, [result.get("result") for result in results]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return results


def sampled(row: dict[str, Any]) -> list[int]:
    behind = row["traj_acc_ids"][row["initial_prompt_token_len"] :]
    return [token for token, bit in zip(behind, row["traj_response_mask"], strict=True) if bit]


def replies(tokens: list[int]) -> Iterator[str]:
    """The replies that a row was sampled in."""
    return (text for text in decode(tokens).split("<|im_end|>") if text)


async def test_a_tool_two_sub_agents_and_a_compaction_are_rows_in_which_each_token_is_once(claude, tmp_path):
    replica = TokenReplica(script, context=200_000)
    host = SessionHost(tmp_path, body_limit=32 << 20)
    host.urls = [await replica.start()]
    await host.start()
    try:
        opened = await host.open()
        first, compacted, last = await dialogue(claude, tmp_path, opened)
        rows = await host.finish()
        _, facts = await host.control("GET", "/sessions")
    finally:
        await host.stop()
        await replica.stop()
    assert (first["result"], last["result"]) == ("The notes say 7, 11 and 13.", "Seven, eleven and thirteen.")
    assert not compacted["is_error"]

    # The compaction begins before the last reply, which Claude Code keeps as it is: two changed histories.
    assert [row["kind"] for row in rows] == ["sub", "sub", "main", "rewrite", "rewrite"]
    *subs, main, summary, after = [list(replies(sampled(row))) for row in rows]
    for name, texts in zip(("b.txt", "c.txt"), sorted(subs, key=str), strict=True):
        assert len(texts) == 2 and f"cat {name}" in texts[0] and texts[1] == f"ANSWER: {name} is read."
    assert [text.split("<")[0].strip() for text in main] == [
        "I look.",
        "I ask two agents.",
        "The notes say 7, 11 and 13.",
    ]
    assert [len(summary), len(after)] == [1, 1] and "<summary>" in summary[0]

    trained = sorted(text for row in rows for text in replies(sampled(row)))
    assert trained == sorted(text for reply in replica.replies for text in replies(reply))
    # No divergence: what the engine read begins with the row up to there.
    for prompt in replica.prompts:
        assert any(row["traj_acc_ids"][: len(prompt)] == prompt for row in rows)
    counters = facts["counters"]
    assert (counters["num_calls"], counters["healed"]) == (len(replica.replies), 4)
    assert (counters["sub_agents"], counters["rewrites"]) == (2, 2) and "num_moved" not in counters
