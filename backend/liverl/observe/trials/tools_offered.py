"""Whether a trial was offered tools, so that one without a call is worth a word."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from liverl.model import TrialHead
from liverl.util.decode import decode_yaml
from liverl.util.late_pattern import late_pattern
from liverl.util.regular_file import read_regular

ZERO = "zero_tool_calls"  # flag of a trial
NOT_RECORDED = "not_recorded"  # flag of a trial: the record of an answered call has no answer
_REQUEST, _RESPONSE = b'"request_body":', b'"response_body":'
_KEYS = (b'"tools":', b'"functions":')  # unescaped quotes: keys, not text
_LISTED = late_pattern(rb"\s*\[\s*[^\]\s]")
# Keys with the tools of verl's agent loops: ours, and verl's own.
_SECTIONS = ("agent", "trainer")
_TOOLS = (
    "agent.tools",
    "agent.functions",
    "multi_turn.tool_config_path",
    "multi_turn.function_tool_path",
)


def in_request(data: bytes | bytearray, start: int, end: int) -> bool | None:
    """Whether the request of the record in ``data[start:end]`` offers tools; None if the record has no request."""
    begin = data.find(_REQUEST, start, end)
    if begin < 0:
        return None
    begin += len(_REQUEST)
    stop = data.rfind(_RESPONSE, begin, end)
    stop = stop if stop >= 0 else end
    if not data[begin : begin + 8].lstrip().startswith(b"{"):
        return None
    return any(_lists(data, key, begin, stop) for key in _KEYS)


def _lists(data: bytes | bytearray, key: bytes, begin: int, stop: int) -> bool:
    while (found := data.find(key, begin, stop)) >= 0:
        begin = found + len(key)
        if _LISTED.match(data, begin, stop):
            return True
    return False


def in_verl(run_dir: str | os.PathLike[str]) -> bool:
    """Whether the run's configuration gives verl tools for its agent loops."""
    try:
        settings = decode_yaml(read_regular(Path(run_dir) / "config.yaml"))
        given = {
            f"{section}.{key}": value for section in _SECTIONS for key, value in settings[section].items()
        }
        given |= given.pop("trainer.overrides")
        return any(bool(value) and str(key).endswith(_TOOLS) for key, value in given.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


class ToolsOffered:
    """Decides for the trials of one run. Those of which it is not known count only if another one has called a tool, or
    if verl was given tools."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._run_dir = run_dir
        self._called = False
        self._in_verl: bool | None = None

    def hear(self, head: TrialHead) -> None:
        """Note whether a trial has called a tool."""
        self._called = self._called or head.tool_calls > 0

    def counts_unknown(self) -> bool:
        """Whether a trial of which it is not known was probably offered tools."""
        if not self._called and self._in_verl is None:
            self._in_verl = in_verl(self._run_dir)
        return self._called or bool(self._in_verl)

    def judged(self, head: TrialHead) -> TrialHead:
        """``head`` without the flag of trials that call no tool, if it was probably offered none."""
        if ZERO not in head.flags or head.tools_offered or self.counts_unknown():
            return head
        return msgspec.structs.replace(head, flags=tuple(flag for flag in head.flags if flag != ZERO))
