"""Parses the head that a logger puts before its message: level, time and place in the source. Pure."""

from __future__ import annotations

from typing import NamedTuple

from liverl.logs.levels import level_of_text
from liverl.logs.moments import DATED, Moment, moment_of
from liverl.model import Level
from liverl.util.late_pattern import late_pattern

_WORD = r"(?:TRACE|DEBUG|INFO|NOTICE|SUCC(?:ESS)?|WARN(?:ING)?|ERR(?:OR)?|PANIC|CRITICAL|FATAL)"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_FILE = r"[\w./<>-]{1,120}"
_STYLES = tuple(
    late_pattern(style)
    for style in (
        # vLLM: "ERROR 11-20 23:51:23 [core.py:1510] ", before 0.8: "ERROR 11-18 18:07:28 engine.py:366] "
        rf"{_WORD} (?P<month>\d\d)-(?P<day>\d\d) {_CLOCK} (?:\[?{_FILE}:\d+\](?: |$))?",
        # verl: "ERROR:2026-11-21 00:02:09,570:"
        rf"{_WORD}:{DATED}: ?",
        # Ray's C++: "[2026-11-21 00:17:39,002 C 65 65] (raylet) file.cc:12: "
        rf"\[{DATED} [DIWEFC] \d+ \d+\] (?:\((?P<process>[\w-]+)\) )?(?:[\w./-]+\.(?:cc|h|cpp):\d+: )?",
        # torch's C++ and glog: "[E321 02:07:11.123 ProcessGroupNCCL.cpp:607] ", "W1121 00:18:39.123 12 a.py:1] "
        rf"\[?[DIWEFC](?P<monthday>\d{{3,4}}) {_CLOCK}(?: +\d+){{0,2}}(?: {_FILE}:\d+)?\] ?",
        rf"[DIWEFC](?P<monthday>\d{{4}}) {_CLOCK} ",
        r"\[[DIWEFC] [\w./-]+\.(?:cc|h|cpp|cu):\d+\] ?",
        # NCCL, with or without its date: "[2025-10-13 09:06:25] host:3663:4044 [0] misc/shmutils.cc:129 NCCL WARN "
        rf"(?:\[{DATED}\] )?(?P<process>[\w.-]{{1,120}}:\d+):\d+ \[\d+\] "
        r"(?:[^\n]{0,60}? )?(?=NCCL (?:INFO|WARN|VERSION))",
        # LiteLLM: "00:16:46 - LiteLLM Proxy:ERROR: file.py:12 - "
        rf"{_CLOCK} - [\w ]{{1,40}}:{_WORD}: (?:{_FILE}:\d+ - )?",
        # loguru: "2026-11-21 00:02:09.570 | ERROR    | module:function:12 - "; and what FastChat keeps of a stream:
        # "2026-11-21 00:02:09 | ERROR | stderr | "
        rf"{DATED} \| {_WORD} *\| (?:(?P<stream>std(?:out|err)) \|(?: |$)|[^\s|]{{1,200}} - )?",
        # Hydra: "[2026-11-21 00:02:09,570][name][ERROR] - "
        rf"\[{DATED}\](?:\[[^\]\n]{{0,80}}\]){{0,2}} ?- ?",
        # Python's logging, Ray, most others: "2026-11-21 00:02:09,570\tERROR worker.py:12 -- ", "... - name - INFO - "
        rf"\[?{DATED}\]?[\s,:|-]{{1,8}}(?:[\w.]{{1,80}}(?: - |: ?))?\[?{_WORD}\]?"
        rf"(?:\s+{_FILE}:\d+ (?:--|-) |\s{{0,8}}[:|-]{{1,3}} ?|\s{{1,8}})",  # a frame stays indented
        rf"\[?{DATED}\]?(?: |$)",
        rf"\[?{_CLOCK}\]? (?:\[?{_WORD}\]?[\s:|-]{{1,8}})?",
        # Python's default: "ERROR:root:"
        rf"{_WORD}:[A-Za-z_][\w.]{{0,80}}:",
        # uvicorn: "INFO:     "
        rf"{_WORD}:\s{{2,8}}(?=\S)",
        # the kernel: "[12345.678901] ", "[Mon Nov 24 03:01:16 2026] ", "Nov 24 03:01:16 host kernel: "
        r"\[ {0,8}\d+\.\d{3,9}\] ",
        rf"\[\w{{3}} (?P<name>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})\] ",
        rf"(?P<name>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) {_CLOCK} (?!{_WORD}\b)[\w.-]{{1,80}} "
        r"(?:kernel: (?:\[ *[\d.]+\] )?|(?=[\w./@()-]{1,80}(?:\[\d{1,10}\])?: ))",
        # ts of moreutils: "Nov 24 03:01:16 "
        rf"(?P<name>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) {_CLOCK} ",
    )
)
_MAY = late_pattern(r"[\[\d]|[A-Z]{4}|[DIWEFC]\d{3}|[A-Z][a-z]{2} |[\w.-]{1,120}:\d+:\d+ \[")
# "*** STEP 1.0 ON node7"
_CANCELLED = late_pattern(rf"(?:slurmstepd(?:-\S{{1,64}})?|srun): .{{0,200}}?CANCELLED AT {DATED}")
LONGEST_HEAD = 400  # characters


class LineHead(NamedTuple):
    """``head``: as written, "" if there is none; ``process``: that the head names, such as "raylet"; ``text``: the
    message."""

    head: str
    moment: Moment | None
    level: Level | None
    process: str
    text: str


def heads_each_line(head: str) -> bool:
    """Whether its logger prints the head before each line of a message, as vLLM's does: a line without it is of
    another record."""
    return _STYLES[0].match(head) is not None


def parse_head(text: str) -> LineHead:
    """Parse a line without colours and prefixes."""
    level = level_of_text(text)
    match = None
    if _MAY.match(text):
        start = text[:LONGEST_HEAD]
        for style in _STYLES:
            if (match := style.match(start)) is not None:
                break
    if match is None:
        late = _CANCELLED.match(text) if text.startswith(("slurm", "srun")) else None
        return LineHead("", moment_of(late) if late is not None else None, level, "", text)
    moment, named = moment_of(match), match.groupdict()
    rest = text[match.end() :]
    if named.get("stream"):  # its level tells the stream alone
        level = None
    if level is None and rest:
        level = level_of_text(rest)
    return LineHead(match.group(), moment, level, named.get("process") or "", rest)
