"""A command agent: three calls through the package of OpenAI or of Anthropic, streamed or not, with their own retries.

Which of the four it is follows from the trial's name. Each call is a line in calls.jsonl, twice: right before its
request, and with its answer. The reward is the share of the letter e in the replies.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("openai", "openai streamed", "anthropic", "anthropic streamed")
CALLS = 3
TOKENS = 120

Messages = list[dict[str, Any]]
# Messages -> the model's text, and how many tokens the answer says that it has.
Ask = Callable[[Messages], tuple[str, int]]


def openai_asker(streamed: bool) -> Ask:
    """With the package of OpenAI."""
    from openai import OpenAI

    completions = OpenAI().chat.completions

    def ask(messages: Messages) -> tuple[str, int]:
        asked = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": TOKENS}
        if not streamed:
            answer = completions.create(**asked)
            return answer.choices[0].message.content or "", answer.usage.completion_tokens
        text, tokens = "", 0
        for chunk in completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            tokens = chunk.usage.completion_tokens if chunk.usage else tokens
        return text, tokens

    return ask


def anthropic_asker(streamed: bool) -> Ask:
    """With the package of Anthropic."""
    from anthropic import Anthropic

    client = Anthropic().messages

    def ask(messages: Messages) -> tuple[str, int]:
        asked: dict[str, Any] = {"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": TOKENS}
        asked["messages"] = [message for message in messages if message["role"] != "system"]
        if system := "".join(message["content"] for message in messages if message["role"] == "system"):
            asked["system"] = system
        if not streamed:
            answer = client.create(**asked)
        else:
            with client.stream(**asked) as stream:
                answer = stream.get_final_message()
        text = "".join(block.text for block in answer.content if block.type == "text")
        return text, answer.usage.output_tokens

    return ask


def way_of(trial: str) -> str:
    """How the agent of the trial with this name asks."""
    return WAYS[zlib.crc32(trial.encode()) % len(WAYS)]


def main() -> None:
    """Ask, and write the reward."""
    way = way_of(os.environ["LIVERL_TRIAL"])
    package, _, streamed = way.partition(" ")
    ask = (openai_asker if package == "openai" else anthropic_asker)(bool(streamed))
    messages = json.loads(Path(os.environ["LIVERL_TASK"]).read_text())["messages"]
    texts = []
    with open("calls.jsonl", "a", buffering=1) as calls:
        for turn in range(CALLS):
            calls.write(json.dumps({"way": way, "turn": turn, "asked": time.time()}) + "\n")
            text, tokens = ask(messages)
            told = {"way": way, "turn": turn, "answered": time.time(), "text": text, "tokens": tokens}
            calls.write(json.dumps(told) + "\n")
            texts.append(text)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
    whole = "".join(texts)
    Path(os.environ["LIVERL_REWARD"]).write_text(str(whole.count("e") / max(1, len(whole))))


if __name__ == "__main__":
    main()
