"""Detects the level of a log line in the formats of vLLM, LiteLLM, Ray, verl, torch, NCCL and Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from liverl.logs.bars import behind_bar
from liverl.logs.prefix_chain import split_prefixes
from liverl.logs.tracebacks import final_of
from liverl.model import Level
from liverl.util.late_pattern import late_pattern

RANK: dict[Level, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
HEAD = 160  # leading characters of a line that are searched for a level
JSON_HEAD = 8192  # of a line that is a JSON object, whose fields stand in any order

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
    "CRIT": "error",
}
# What only stands in a field that names the level
_FIELD_WORDS: dict[str, Level] = {
    **_WORDS,
    "EROR": "error",
    "DPANIC": "error",
    "EMERGENCY": "error",
    "SEVERE": "error",
    "10": "debug",
    "20": "debug",
    "30": "info",
    "40": "warning",
    "50": "error",
    "60": "error",
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
_LOGGER = late_pattern(
    r"[\[(<|\s]*+(?:\d[\d:.,/+\- ]*+(?:T\d[\d:.,+\-]*+)?+Z?+[\])>|\s,\-]*+)?+"
    r"(?:[A-Za-z_][\w. \-/]{0,60}?(?:[:|\]]|\s-)\s*+)?"
    r"[\[(<|]*+" + _WORD + r"\s{0,8}(?=[\s:|\]>),\-]|$)"
)
# torch "[rank0]:W1121 00:18:39.123", Ray's C++ "[2026-11-21 00:17:39,002 E 12 34] (raylet)", glog "I0521 12:00:00"
# (torch writes the month without a leading zero, and some builds write no time: "[E321 02:07:08.4 ", "[E a.cpp:737]")
_LETTER = late_pattern(
    r"\[?(?:([DIWEFC])\d{3,4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ([DIWEFC]) \d+ \d+\]"
    r"|(?<=\[)([DIWEFC]) [\w./-]{1,80}\.(?:cpp|cc|cu|h):\d+\])"
)
_NCCL = late_pattern(r"(?:\[[\d:./T -]{10,40}\] )?[\w.-]{1,100}:\d+:\d+ \[\d+\] .{0,60}?NCCL (INFO|WARN)")
_FIELD = late_pattern(
    r'(?:\b(?:level|lvl|severity)=|"(?:log[._])?(?:level|severity|levelname|lvl)" ?: ?)"?(\w+)', re.IGNORECASE
)
# nginx "2026/11/21 00:17:39 [error] 7#7: ", "nginx: [emerg] ", Envoy "[2026-11-21 00:17:39.206][15][warning][config] "
_BRACKET = late_pattern(
    r"(?:nginx: |\[[\d :.,T-]{10,30}\](?:\[\d{1,10}\])?|[\d/:.,\-T ]*)"
    r"(?:\[[\w./-]{1,60}\] ){0,2}\[(debug|info|notice|warn|warning|error|critical|crit|alert|emerg|fatal)\]"
)
# Postgres "2026-11-21 00:17:39.002 UTC [33] FATAL:  ", logrus "ERRO[0003] "
_POSTGRES = late_pattern(
    r"[\d:. -]{19,26} [A-Z][\w+-]{1,5} \[\d{1,10}\](?: \S{1,80})? (DEBUG|LOG|NOTICE|WARNING|ERROR|FATAL|PANIC): "
)
_LOGRUS = late_pattern(r"(DEBU|INFO|WARN|ERRO|FATA|PANI)\[\d{4,10}\] ")
_SHORT: dict[str, Level] = {
    "DEBU": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERRO": "error",
    "FATA": "error",
    "PANI": "error",
    "LOG": "info",
}
# What syslog puts before a program's message: "dockerd[25200]: ", "node7 kubelet[735]: "
_PROGRAM = late_pattern(
    r"(?:[\w.-]{1,80} )?[\w./@-]{1,60}(?:\[\d{1,10}\]: |: (?=[DIWEF]\d{4} \d\d:|time=\"|level=))"
)
# An event of Kubernetes, as describe and get events list it: "  Warning  FailedMount  2m (x8 over 5m)  kubelet  ..."
EVENT = late_pattern(
    r"\s{0,8}(?:[\w()]{1,20}\s{1,20}){0,3}Warning\s{1,12}"
    r"(?:Failed\w{0,40}|BackOff|Evicted|InvalidImageName|ErrImage\w{1,20}|NetworkNotReady|OOMKilling|SystemOOM)\s"
)
# Hydra: "[2026-11-21 00:02:09,570][main][ERROR] - "
_HYDRA = late_pattern(r"\[[\d :.,-]{19,26}\]\[[^\]\n]{1,80}\]\[" + _WORD + r"\]")
_WARNS = late_pattern(r"(?:\S+:\d+: )?(?:[A-Za-z_]\w*\.)*[A-Z]\w*Warning: ")
_FAILS = late_pattern(
    r"(?:"
    r"Traceback \(most recent call last\)|\+ Exception Group Traceback"
    r"|(?:\[[A-Z][\w:.-]{0,40}\] )?"
    r"(?:[A-Za-z_]\w*\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|ExceptionGroup|Interrupt|Exit|Expired)"
    r"(?:\([\w.]*\))?(?:: |:?$)"
    r"|During handling of the above exception|The above exception was the direct cause"
    r"|Fatal Python error|Segmentation fault|Bus error|terminate called|Out of memory|Memory cgroup out of memory"
    r"|oom-kill:|Killed$|Aborted(?: \(core dumped\))?$|Terminated$|!{3,} ?Segfault encountered"
    r"|\[ {0,8}\d+\.\d{3,9}\] (?:.{0,80}?(?:Out of memory|out of memory|oom-kill|segfault at|NVRM: Xid|I/O error"
    r"|EXT4-fs error|Remounting filesystem read-only|timeout, reset controller|Kernel panic|soft lockup|BUG: "
    r"|Corruption|blocked for more than|table full|page allocation failure|Hardware Error|self-detected stall)"
    r"|Killed process)"
    r"|(?:ptxas|nvcc|nvlink|cicc) (?:fatal|error) {0,8}:?"
    r"|(?:Error (?:executing job with|merging|parsing) override|Error in call to target|Could not override "
    r"|Unhandled error |In '[^'\n]{1,100}': Could not find ')"
    r"|(?:mismatched input '|no viable alternative at input |extraneous input ')"
    r"|(?:Process \S{1,80}:$)"
    r"|(?:\[[\w.: -]{1,60}\] ?){0,3}(?:[\w./-]{1,60}: )?"
    r"(?:[Ee]rror|ERROR|[Ff]atal(?: error)?|FATAL(?: ERROR)?|CRITICAL|panic): "
    # Docker, and the tools that run while images are built and sandboxes are prepared
    r"|(?:docker: |podman: )?(?:Error response from daemon|Error invoking remote method)\b"
    r"|dependency failed to start: |error (?:running|creating|starting|pulling|building|during) "
    r"|(?:#\d{1,4} ERROR|failed to solve): "
    r"|(?:\[[\w.:/ -]{1,60}\] ?){0,3}Error \w{3,20}ing [^\n]{1,100}: "
    r"|Cannot connect to the Docker daemon|The command '/bin/"
    r"|npm (?:ERR!|error) |E: [A-Z]|yarn error |error An unexpected error occurred"
    r"|(?:curl: \(\d{1,3}\)|rsync error:|ssh_exchange_identification:|kex_exchange_identification:|dpkg: error) ?"
    r"|(?:git|curl|wget|ssh|scp|rsync|mount(?:\.\w{1,10})?|umount|sudo|su|systemctl|docker|podman|kubectl|helm|tmux|cp|mv"
    r"|tar|unzip|cd|touch|dd|nginx|redis-server|mysqld|java|node|cargo|make|cmake|ld|setfacl|useradd|tee|env|timeout"
    r"|nohup|exec|singularity|apptainer|enroot|modprobe|sysctl|bind|socket): "
    r"[^\n]{0,150}?(?:cannot |can't |unable to |failed|[Nn]ot found|No such file or directory|[Dd]enied|refused"
    r"|timed out|No space left|Read-only file system|busy|not permitted|unreachable|reset by peer|Stale file"
    r"|quota|Input/output error|Invalid argument|No route to host|not connected)"
    # crashes of Go, Rust, Node.js and Java
    r"|thread '[^'\n]{1,80}' (?:\(\d{1,10}\) )?panicked at |fatal runtime error: |runtime: out of memory"
    r"|\[UnhandledPromiseRejection|Uncaught [A-Z]\w{0,60}(?:Error|Exception)?:? |Unhandled [Rr]ejection"
    r"|Exception in thread \"[^\"\n]{1,120}\" |Caused by: [\w.]{1,120}(?:Error|Exception)"
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
    r"code=(?:killed|dumped|exited, status=[1-9])|Failed with result '|A process of this unit has been killed"
    r"|Failed (?:at step |to locate executable |to execute |to set up ))"
    r"|Failed to (?:connect to bus|start \S{1,80}\.service)"
    r"|System has not been booted with systemd)"
)
# bash: "bash: line 1: 99 Segmentation fault      (core dumped) python3", "/job.sh: line 12:  4567 Killed   python3"
# With the host before it, as pdsh and clush write it: "node0: bash: line 1: 99 Killed"
SHELL = late_pattern(
    r"(?:[A-Za-z][\w.-]{0,63}: )?(?:[\w./-]{1,200}: line \d+: +)(?:\d+ )?"
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
    text = split_prefixes(line).text
    return level_of_text(text[behind_bar(text) :])


def level_of_text(text: str) -> Level | None:
    """Return the level that a plain line without prefixes states itself, or as what it says implies."""
    level = _level(text)
    if level is not None or ": " not in text[:HEAD]:
        return level
    program = _PROGRAM.match(text)
    return None if program is None else _level(text[program.end() :])


def _level(text: str) -> Level | None:
    head = text[:HEAD]
    if head[:1] == "{":
        found = _FIELD.search(text[:JSON_HEAD])
        return None if found is None else _FIELD_WORDS.get(found[1].upper())
    match = _LOGGER.match(head)
    if match is not None:
        return _WORDS[match[1]]
    if "Warning " in head and EVENT.match(head):
        return "error"
    if head[:1].isspace():
        return None
    if _FAILS.match(head) or SHELL.match(head):
        return "error"
    match = _LETTER.match(head)
    if match is not None:
        return _GLOG[match[1] or match[2] or match[3]]
    if _WARNS.match(head):
        return "warning"
    match = _LOGRUS.match(head) or _POSTGRES.match(head)
    if match is not None:
        return _SHORT.get(match[1]) or _WORDS.get(match[1])
    match = _BRACKET.match(head) or _HYDRA.match(head) or _NCCL.match(head)
    if match is None and ("level" in head or "everity" in head or "lvl" in head):
        match = _FIELD.search(head)
    return _FIELD_WORDS.get(match[1].upper()) if match is not None else None


def continues(text: str) -> bool:
    """Whether a line without a process prefix continues the line above: blank, indented, or a frame of an
    exception group."""
    return not text or text[0].isspace() or text[:2] in ("| ", "+-")


def ends_traceback(text: str) -> bool:
    """Whether a line without prefixes may be the last one of a traceback, "Type: message"; what stands above it says
    whether it is."""
    return final_of(text) is not None


_FRAME = '  File "'
_NO_WRITER = " None"  # the key of lines without a prefix


class Levels:
    """Assigns each line its own or inherited level: a traceback has the level of its error, also its exception,
    whose name need not end in "Error".

    Lines of several processes in one log are distinguished by their ``(Name pid=N)`` prefix.
    """

    def __init__(self, before: Iterable[str] = ()) -> None:
        """``before``: the plain lines above the first one."""
        self._last: dict[str, Level | None] = {}
        self._traced: set[str] = set()  # the writers whose last line is of a frame of a traceback
        for line in before:
            self.of(line)

    def of(self, line: str) -> Level | None:
        """Return the level of the next plain line."""
        quick = _QUICK.get(line[:5])
        if quick is not None:
            self._last[_NO_WRITER] = quick
            self._traced.discard(_NO_WRITER)
            return quick
        chain = split_prefixes(line)
        prefix, text = f"{chain.writer} {chain.rank}", chain.text
        level = level_of_text(text)
        if text.startswith(_FRAME):
            self._traced.add(prefix)
        if continues(text):
            if level is None:
                return self._last.get(prefix)
        elif prefix in self._traced:
            self._traced.discard(prefix)
            if level is None and ends_traceback(text):
                level = self._last.get(prefix) or "error"
        if len(self._last) > 1000:
            self._last.clear()
            self._traced.clear()
        self._last[prefix] = level
        return level
