"""Trials of the embedded engine with rows of tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from liverl.embedded import tokenizer as embedded

# (text, whether it was sampled): a prompt, a call, its result, and an answer
DIALOGUE = (
    ("<|im_start|>user\nSort names.txt<|im_end|>\n<|im_start|>assistant\n", 0),
    ("I sort them.\n<tool_call>sort names.txt</tool_call><|im_end|>", 1),
    ("\n<|im_start|>user\n<tool_response>ok</tool_response><|im_end|>\n<|im_start|>assistant\n", 0),
    ("Done.<|im_end|>", 1),
)
_LOGPROBS = (-0.001, -0.02, -0.4, -0.003, -1.7, -0.05, -3.9, -0.0004, -6.2)  # one after the other


def said(*parts: tuple[str, int], **changed: Any) -> dict[str, Any]:
    """A row. ``parts``: texts and whether each was sampled; the first is the prompt. ``changed``: fields, None: left
    out."""
    prompt, *others = [(embedded.encode(text), bit) for text, bit in parts]
    mask = [bit for ids, bit in others for _ in ids]
    logprobs = [_LOGPROBS[n % len(_LOGPROBS)] - n / 1000 if bit else 0.0 for n, bit in enumerate(mask)]
    whole = {
        "initial_prompt_token_len": len(prompt[0]),
        "traj_acc_ids": [*prompt[0], *(token for ids, _ in others for token in ids)],
        "traj_response_mask": mask,
        "traj_response_logprobs": logprobs,
        "policy_versions": [[7, sum(mask)]],
        **changed,
    }
    return {name: value for name, value in whole.items() if value is not None}


def write_run(run_dir: Path, path: str, document: Any) -> None:
    """A run's configuration, and a trial of ``DIALOGUE`` with two turns. ``document``: its rows, as JSON or as bytes;
    None: it has none, and its turns went through no session."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text("run:\n  name: first\n  topology: managed\n  engine: embedded\n")
    folder = run_dir / path
    folder.mkdir(parents=True, exist_ok=True)
    messages: list[dict[str, str]] = [{"role": "user", "content": "Sort names.txt"}]
    lines = []
    for number, text in enumerate(("I sort them.", "Done.")):
        answer = {"role": "assistant", "content": text}
        sampled = DIALOGUE[1 + 2 * number][0]
        session = {
            "kind": "main",
            "opens": not number,
            "counters": {"num_calls": number + 1, "healed": number},
        }
        record = {
            "success": True,
            "request_time": 1_795_220_000_000 + number,
            "duration_ms": 800,
            "request_body": {"messages": list(messages)},
            "response_body": {"id": f"r{number}", "choices": [{"finish_reason": "stop", "message": answer}]},
            "usage": {"completion_tokens": len(embedded.encode(sampled))},
            **({"session": session} if document is not None else {}),
        }
        lines.append(json.dumps(record) + "\n")
        messages += [answer, {"role": "user", "content": "ok"}]
    (folder / "litellm-trajectory.jsonl").write_text("".join(lines))
    (folder / "result.json").write_text('{"verifier_result": {"rewards": {"reward": 1.0}}}')
    if document is not None:
        raw = document if isinstance(document, bytes) else json.dumps(document).encode()
        (folder / "proxy_trajectory.json").write_bytes(raw)
