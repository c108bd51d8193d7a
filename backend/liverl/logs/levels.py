"""Detects the level of a log line in the formats of vLLM, LiteLLM, Ray, verl, torch, NCCL and Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from liverl.logs.prefix_chain import split_prefixes
from liverl.model import Level

RANK: dict[Level, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
HEAD = 160  # leading characters of a line that are searched for a level

_WORDS: dict[str, Level] = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "NOTICE": "info",
    "SUCC": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERR": "error",
    "ERROR": "error",
    "PANIC": "error",  # of Ray's commands
    "CRITICAL": "error",
    "FATAL": "error",
    "EMERG": "error",
    "ALERT": "error",
}
_GLOG: dict[str, Level] = {
    "D": "debug",
    "I": "info",
    "W": "warning",
    "E": "error",
    "F": "error",
    "C": "error",
}
_WORD = "(" + "|".join(sorted(_WORDS, key=len, reverse=True)) + ")"
# An optional time, an optional logger's name with its separator, then the word:
# "INFO 11-20 23:51:23 [core.py:1]", "2026-11-21 00:17:39,002 INFO worker.py:2", "00:16:46 - LiteLLM Proxy:ERROR: "
# (possessive quantifiers: lines of only bars and blanks must not be slow)
_LOGGER = re.compile(
    r"[\[(<|\s]*+(?:\d[\d:.,/+\- ]*+(?:T\d[\d:.,+\-]*+)?+Z?+[\])>|\s,\-]*+)?+"
    r"(?:[A-Za-z_][\w. \-/]{0,60}?(?:[:|\]]|\s-)\s*+)?"
    r"[\[(<|]*+" + _WORD + r"\s{0,8}(?=[\s:|\]>),\-]|$)"
)
# torch "[rank0]:W1121 00:18:39.123", Ray's C++ "[2026-11-21 00:17:39,002 E 12 34] (raylet)", glog "I0521 12:00:00"
# (torch writes the month without a leading zero, and some builds write no time: "[E321 02:07:08.4 ", "[E a.cpp:737]")
_LETTER = re.compile(
    r"\[?(?:([DIWEFC])\d{3,4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ([DIWEFC]) \d+ \d+\]"
    r"|(?<=\[)([DIWEFC]) [\w./-]{1,80}\.(?:cpp|cc|cu|h):\d+\])"
)
_NCCL = re.compile(r"(?:\[[\d:./T -]{10,40}\] )?[\w.-]{1,100}:\d+:\d+ \[\d+\] .{0,60}?NCCL (INFO|WARN)")
_FIELD = re.compile(r'(?:\blevel=|"(?:level|severity|levelname)": ?)"?(\w+)', re.IGNORECASE)
_BRACKET = re.compile(r"[\d/:.,\-T ]*\[(debug|info|warn|warning|error|critical|fatal)\]")
# Hydra: "[2026-11-21 00:02:09,570][main][ERROR] - "
_HYDRA = re.compile(r"\[[\d :.,-]{19,26}\]\[[^\]\n]{1,80}\]\[" + _WORD + r"\]")
_WARNS = re.compile(r"(?:\S+:\d+: )?(?:[A-Za-z_]\w*\.)*[A-Z]\w*Warning: ")
_FAILS = re.compile(
    r"(?:"
    r"Traceback \(most recent call last\)|\+ Exception Group Traceback"
    r"|(?:[A-Za-z_]\w*\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|ExceptionGroup|Interrupt|Exit|Expired)"
    r"(?:\([\w.]*\))?(?:: |:?$)"
    r"|During handling of the above exception|The above exception was the direct cause"
    r"|Fatal Python error|Segmentation fault|Bus error|terminate called|Out of memory|Memory cgroup out of memory"
    r"|oom-kill:|Killed$|Aborted(?: \(core dumped\))?$|Terminated$|!{3,} ?Segfault encountered"
    r"|\[ {0,8}\d+\.\d{3,9}\] (?:.{0,80}?(?:Out of memory|out of memory|oom-kill|segfault at|NVRM: Xid)|Killed process)"
    r"|(?:ptxas|nvcc|nvlink|cicc) (?:fatal|error) {0,8}:?"
    r"|(?:Error (?:executing job with|merging|parsing) override|Error in call to target|Could not override "
    r"|Unhandled error |In '[^'\n]{1,100}': Could not find ')"
    r"|(?:mismatched input '|no viable alternative at input |extraneous input ')"
    r"|(?:Process \S{1,80}:$)"
    r"|(?:[\w./-]{1,60}: )?(?:[Ee]rror|ERROR|[Ff]atal(?: error)?|FATAL|CRITICAL): "
    r"|\*\*\* SIG[A-Z]+ received"
    # bash, and what scripts call
    r"|[\w./-]{1,200}: line \d{1,6}: [^\n]{0,120}?(?:unbound variable|parameter (?:null or )?not set|syntax error"
    r"|command not found|No such file or directory|Permission denied|Argument list too long)"
    r"|-?(?:ba|da|z)?sh: [^\n]{1,120}?: (?:No such file or directory|Permission denied|command not found)"
    r"|[\w./-]{1,100}: (?:command not found$|can't open file '|No module named )|[\w./: ^-]{1,150}?: bad interpreter: "
    r"|[A-Z]\w{1,60}NotFound: "
    # Ray of its workers and jobs
    r"|A worker died or was killed while executing a task|Job '[^'\n]{1,100}' failed$"
    r"|(?:Status message: )?Job entrypoint command failed with exit code |Status message: runtime_env setup failed"
    r"|Job supervisor actor (?:failed|could not)|command terminated with exit code "
    r"|[\w.-]{1,80} exited with code [1-9]\d{0,2}\b|systemd\[\d{1,7}\]: \S{1,120}: (?:Main process exited, "
    r"code=(?:killed|dumped|exited, status=[1-9])|Failed with result '|A process of this unit has been killed))"
)
# bash: "bash: line 1: 99 Segmentation fault      (core dumped) python3", "/job.sh: line 12:  4567 Killed   python3"
SHELL = re.compile(
    r"(?:[\w./-]{1,200}: line \d+: +)(?:\d+ )?"
    r"(?:Segmentation fault|Killed|Aborted|Terminated|Bus error|Illegal instruction"
    r"|Floating point exception|Trace/breakpoint trap|Hangup)\b"
    r"|(?:Segmentation fault|Killed|Aborted|Terminated|Bus error|Illegal instruction)(?: \(core dumped\))?(?:$| {2,})"
)
_QUICK: dict[str, Level] = {
    "INFO ": "info",
    "INFO:": "info",
}  # how most lines begin: no regular expression needed


def own_level(line: str) -> Level | None:
    """Return the level that a plain line states itself; None if it states none."""
    return level_of_text(split_prefixes(line).text)


def level_of_text(text: str) -> Level | None:
    """Return the level that a plain line without prefixes states itself, or as what it says implies."""
    head = text[:HEAD]
    match = _LOGGER.match(head)
    if match is not None:
        return _WORDS[match[1]]
    if head[:1].isspace():
        return None
    if _FAILS.match(head) or SHELL.match(head):
        return "error"
    match = _LETTER.match(head)
    if match is not None:
        return _GLOG[match[1] or match[2] or match[3]]
    if _WARNS.match(head):
        return "warning"
    match = _BRACKET.match(head) or _HYDRA.match(head) or _NCCL.match(head)
    if match is None and ("level" in head or "everity" in head):
        match = _FIELD.search(head)
    return _WORDS.get(match[1].upper()) if match is not None else None


def continues(text: str) -> bool:
    """Whether a line without a process prefix continues the line above: blank, indented, or a frame of an
    exception group."""
    return not text or text[0].isspace() or text[:2] in ("| ", "+-")


_NO_WRITER = " None"  # the key of lines without a prefix


class Levels:
    """Assigns each line its own or inherited level: a traceback has the level of its error.

    Lines of several processes in one log are distinguished by their ``(Name pid=N)`` prefix.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """``before``: the plain lines above the first one."""
        self._last: dict[str, Level | None] = {}
        for line in before:
            self.of(line)

    def of(self, line: str) -> Level | None:
        """Return the level of the next plain line."""
        quick = _QUICK.get(line[:5])
        if quick is not None:
            self._last[_NO_WRITER] = quick
            return quick
        chain = split_prefixes(line)
        prefix, text = f"{chain.writer} {chain.rank}", chain.text
        level = level_of_text(text)
        if level is None and continues(text):
            return self._last.get(prefix)
        if len(self._last) > 1000:
            self._last.clear()
        self._last[prefix] = level
        return level
