"""A row with pictures: its trial fails with words that say so, and nothing is dropped without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.own_runs import Trials
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

from liverl.agents.loop import TrialFailed
from liverl.verl_runtime.pictures import refuse_pictures

TEXT = {"type": "text", "text": "What is this?"}
# As verl's data set makes them of a row, or as a row may have them.
PARTS: dict[str, dict[str, Any]] = {
    "image": {"type": "image", "image": object()},
    "image of a processor": {"type": "image"},
    "image without a type": {"image": "p.png"},
    "image_url": {"type": "image_url", "image_url": {"url": "data:..."}},
    "video": {"type": "video", "video": "v.mp4"},
    "audio": {"type": "audio", "audio": "a.wav"},
    "input_audio": {"type": "input_audio", "input_audio": {}},
    "file": {"type": "file", "file": {}},
}
OTHERS: dict[str, Any] = {
    "text": "hi",
    "a tag": "<image>What is this?",
    "none": None,
    "parts of text": [TEXT, TEXT],
    "a part without a type": [{"text": "x"}],
    "texts": ["x"],
    "no parts": [],
}


def script(_prompt: str, _turn: int) -> str:
    return "A cat."


@pytest.mark.parametrize("kind", ["chat", "tools", "task", "python", "command"])
@pytest.mark.parametrize("part", PARTS)
def test_a_prompt_with_a_picture_is_refused(kind: str, part: str) -> None:
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": [TEXT, PARTS[part]]}]
    with pytest.raises(TrialFailed, match="the row's prompt has a part of type ") as caught:
        refuse_pictures(kind, messages)
    assert caught.value.kind == "PicturesNotCarriedError" and not caught.value.again
    refuse_pictures("harbor", messages)  # its agent gets the task, not the row


@pytest.mark.parametrize("content", OTHERS)
def test_text_is_not(content: str) -> None:
    refuse_pictures("chat", [{"role": "user", "content": OTHERS[content]}, {"role": "assistant"}])


async def test_the_trial_fails_and_samples_nothing(
    tmp_path: Path, host: SessionHost, replica: TokenReplica
) -> None:
    trials = Trials(tmp_path, host, {})
    outcome = await trials.run([{"role": "user", "content": [TEXT, PARTS["image"]]}])
    assert not outcome.rows and replica.prompts == []
    told = trials.result(outcome)["exception_info"]
    assert told["exception_type"] == "PicturesNotCarriedError"
    assert "which the agent chat cannot hand to the model: only text is trained" in told["exception_message"]
