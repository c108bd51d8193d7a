"""What to do, for a run that liverl-tui did not start: its script has no keys of ours. Pure."""

from __future__ import annotations

import re
from functools import cache

from msgspec.structs import replace

from liverl.causes.finding import Explanation

# Keys whose names say nothing outside our configuration.
_NAMED = {
    "trainer.overrides": "the launch command",
    "vllm.gen_tp": "vLLM's tensor_parallel_size",
    "training.sp_size": "sequence parallelism",
    "ray.address": "set its address",
}
_OWN_NAMES = ("vllm.",)  # sections whose keys are the program's own options, under their own names


@cache
def _keys() -> re.Pattern[str]:
    from liverl.config.schema import leaves

    keys = "|".join(re.escape(key) for key in sorted(leaves(), key=len, reverse=True) if "." in key)
    return re.compile(rf"(?:--set )?(?<![\w./-])(?P<key>{keys})\b(?!\.\w|[/(])")


def in_plain_words(text: str) -> str:
    """``text`` with the meaning in place of each key of our configuration: ``training.max_response_length`` is ``max
    response length``, ``vllm.max_num_seqs`` is ``vLLM's max_num_seqs``. What only looks like a key stays."""
    return _keys().sub(_plain, text)


def _plain(found: re.Match[str]) -> str:
    key = found["key"]
    if key in _NAMED:
        return _NAMED[key]
    name = key.rpartition(".")[2]
    return f"vLLM's {name}" if key.startswith(_OWN_NAMES) else name.replace("_", " ")


def for_others(one: Explanation) -> Explanation:
    """``one`` without keys of ours in its sentences. Its patch stays: it is for a configuration of ours, if one is
    made of this launch (``liverl-tui import``)."""
    return replace(one, cause=in_plain_words(one.cause), fix=in_plain_words(one.fix))
