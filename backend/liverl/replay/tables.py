"""What only a live backend measures, over time: one table per field of the snapshot.

Everything else in a snapshot is read from the run directory's files, when a recording is played as in a live run. A
table is a JSONL file of rows ``{"at": Unix seconds, "value": ...}``, one for each change of the value.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec

from liverl.model import Snapshot
from liverl.snapshot_json import plain_snapshot
from liverl.util.decode import JsonDecoder

# Fields that come from the files, from the diagnosis, or from where a recording is played.
FROM_FILES = frozenset(
    (
        "seq",
        "at",
        "run",
        "run_dir",
        "step_seconds",
        "step_time",
        "metrics",
        "rewards",
        "trials",
        "symptoms",
        "unreadable",
        "result",
        "schema",
    )
)
# In their order in the snapshot. A field that is new in the snapshot is measured until it is named above.
MEASURED = tuple(name for name in Snapshot.__struct_fields__ if name not in FROM_FILES)


class Row(msgspec.Struct, frozen=True):
    """A value from the Unix time ``at`` on."""

    at: float
    value: Any


_rows: JsonDecoder[Row] = JsonDecoder(Row)
encode_row = msgspec.json.Encoder().encode


def measured(snapshot: Snapshot) -> dict[str, Any]:
    """The measured fields of a snapshot as dictionaries and lists."""
    plain = plain_snapshot(snapshot)
    return {name: plain[name] for name in MEASURED}


class Table:
    """The values of one field, oldest first."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.at)
        self._times = [row.at for row in self.rows]

    @classmethod
    def read(cls, data: bytes) -> Table:
        """The table in the lines of ``data``; an incomplete last line is skipped.

        Raises:
            msgspec.DecodeError: a line is not a row.
        """
        lines = data.split(b"\n")
        return cls([_rows.decode(line) for line in lines[:-1]])

    def at(self, time: float) -> Any:
        """The value at a Unix time; before the first row the first value, None without any row."""
        if not self.rows:
            return None
        return self.rows[max(0, bisect_right(self._times, time) - 1)].value
