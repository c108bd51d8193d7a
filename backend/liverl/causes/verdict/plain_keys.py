"""What to do, for a run that liverl-tui did not start: its script has no keys of ours. Pure."""

from __future__ import annotations

import re
from functools import cache

from msgspec.structs import replace

from liverl.causes.finding import Explanation

# Keys whose names say nothing outside our configuration.
_NAMED = {
    "trainer.overrides": "the launch command",
    "vllm.gen_tp": "tensor_parallel_size",
    "training.sp_size": "sequence parallelism",
    "ray.address": "RAY_ADDRESS",  # which Ray itself reads
    "reward.function": "reward function",
    "harbor_runtime.num_workers": "the number of trials at once",
    "harbor_agent.override_timeout_sec": "the time-out of a trial",
    "training.n_resp_per_prompt": "the number of responses per prompt",
}
_VARIABLES = ("ray.address",)  # said as the variable of a shell, which takes its value without blanks
_OWN_NAMES = ("vllm.",)  # sections whose keys are the program's own options, under their own names


@cache
def _keys() -> re.Pattern[str]:
    from liverl.config.schema import leaves

    keys = "|".join(re.escape(key) for key in sorted(leaves(), key=len, reverse=True) if "." in key)
    article = r"(?P<article>\b[Aa]n? (?:\w{1,20} )?)?"
    return re.compile(
        rf"{article}(?:--set )?(?<![\w./-])(?P<key>{keys})\b(?!\.\w|[/(])(?P<equals>=(?=[^\s=]))?"
    )


def in_plain_words(text: str) -> str:
    """``text`` with the meaning in place of each key of our configuration: ``training.max_response_length`` is ``max
    response length``, ``vllm.max_num_seqs`` is ``vLLM's max_num_seqs``. What only looks like a key stays; and a key in
    brackets behind its own meaning is left out."""
    said: set[str] = set()

    def plain(found: re.Match[str]) -> str:
        words = _plain(found)
        said.add(words)
        return words

    text = _keys().sub(plain, text)
    for words in said:
        text = text.replace(f"{words} ({words})", words)
    return text


def _plain(found: re.Match[str]) -> str:
    key, article = found["key"], found["article"] or ""
    equals = "" if not found["equals"] else "=" if key in _VARIABLES else " = "
    name = key.rpartition(".")[2]
    if not key.startswith(_OWN_NAMES):
        return f"{article}{_NAMED.get(key) or name.replace('_', ' ')}{equals}"
    own = _NAMED.get(key, name)
    # "a vLLM's tensor_parallel_size" is no English
    return f"{article}{own} of vLLM{equals}" if article else f"vLLM's {own}{equals}"


def for_others(one: Explanation) -> Explanation:
    """``one`` without keys of ours in its sentences. Its patch stays: it is for a configuration of ours, if one is
    made of this launch (``liverl-tui import``)."""
    return replace(one, cause=in_plain_words(one.cause), fix=in_plain_words(one.fix))
