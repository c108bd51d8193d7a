"""JSON Schemas of the configuration file and of what scripts read, by name: one line of ``SCHEMAS`` each.

They are made from the structs that the program itself encodes and decodes, so they cannot say anything else. The files
in ``schemas/`` of the repository are published copies; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from liverl.model import SCHEMA, Check, Event, Result
from liverl.notify.message import Message
from liverl.observe.history import Sample
from liverl.offline.compare import Comparison
from liverl.offline.doctor.report import DoctorReport
from liverl.offline.run_disk import RunDisk
from liverl.offline.timeline_shown import TimelineShown
from liverl.preflight.record import Preflight, Report
from liverl.schemas.config_file import config_file
from liverl.schemas.outputs import output, status


class Published(NamedTuple):
    """One schema. ``describes``: in a few words, for people; ``make``: returns it without its head."""

    describes: str
    make: Callable[[], dict[str, Any]]


SCHEMAS: dict[str, Published] = {
    "config": Published("a configuration file (config.yaml)", config_file),
    "status": Published("status --json, watch --once --json, and snapshot.json", status),
    "events": Published("a line of events.jsonl and of events --json", lambda: output(Event)),
    "result": Published("result.json", lambda: output(Result)),
    "doctor": Published("doctor --json", lambda: output(DoctorReport)),
    "check": Published("check --json", lambda: output(Report)),
    "checks": Published("an entry of the checks in check --json and plan --json", lambda: output(Check)),
    "preflight": Published("preflight.json", lambda: output(Preflight)),
    "compare": Published("compare --json", lambda: output(Comparison)),
    "disk": Published("disk --json", lambda: output(RunDisk)),
    "timeline": Published("timeline --json", lambda: output(TimelineShown)),
    "history": Published("a line of history.jsonl", lambda: output(Sample)),
    "notification": Published("the message that a notification target gets", lambda: output(Message)),
}


def schema_text(name: str) -> str:
    """The schema ``name`` as JSON text that ends with a newline.

    Raises:
        KeyError: there is none of that name.
    """
    published = SCHEMAS[name]
    body = published.make()
    head = {
        "$schema": body.pop("$schema", "https://json-schema.org/draft/2020-12/schema"),
        "$id": f"urn:liverl-tui:schema:{name}:{SCHEMA}",
        "title": f"liverl-tui: {published.describes}",
    }
    return json.dumps({**head, **body}, indent=1, ensure_ascii=False) + "\n"
