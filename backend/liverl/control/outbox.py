"""What waits to be sent to one client, bounded. No I/O.

Answers are never dropped (whoever fills the box stops reading that client's requests while ``full``).
Broadcast lines past the limit are dropped together, and one ``resync`` says so. Of snapshots only the newest
waits.
"""

from __future__ import annotations

from collections import deque

from liverl.control.messages import encode_line


class Outbox:
    """``limit``: bytes of broadcast lines, and of answers before it counts as full. A single line may be
    longer than that when nothing else waits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._answers: deque[bytes] = deque()
        self._answer_bytes = 0
        self._events: deque[bytes] = deque()
        self._event_bytes = 0
        self.resynced = False  # whether broadcast lines were dropped and the word about it still waits
        self._snapshot: bytes | None = None
        self._farewell: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes that wait, all kinds together."""
        rest = len(self._snapshot or b"") + len(self._farewell or b"")
        return self._answer_bytes + self._event_bytes + rest

    @property
    def full(self) -> bool:
        return self._answer_bytes > self.limit

    def answer(self, line: bytes) -> None:
        self._answers.append(line)
        self._answer_bytes += len(line)

    def event(self, line: bytes, seq: int) -> None:
        """Queue a broadcast line; ``seq`` is its event's."""
        if self._events and self._event_bytes + len(line) > self.limit:
            self.resync(seq)
        else:
            self._events.append(line)
            self._event_bytes += len(line)

    def resync(self, seq: int) -> None:
        """Drop broadcast lines and snapshot, and say that everything up to ``seq`` has to be asked for."""
        line = encode_line({"resync": {"seq": seq}})
        self._events.clear()
        self._events.append(line)
        self._event_bytes = len(line)
        self._snapshot = None
        self.resynced = True

    def snapshot(self, line: bytes) -> None:
        self._snapshot = line

    def farewell(self, line: bytes) -> None:
        """The last line of all."""
        self._farewell = line

    def take(self) -> bytes | None:
        """The next line to send: answers, events, the snapshot (which includes them), the farewell."""
        line: bytes | None
        if self._answers:
            line = self._answers.popleft()
            self._answer_bytes -= len(line)
        elif self._events:
            line = self._events.popleft()
            self._event_bytes -= len(line)
            self.resynced = False
        elif self._snapshot is not None:
            line, self._snapshot = self._snapshot, None
        else:
            line, self._farewell = self._farewell, None
        return line
