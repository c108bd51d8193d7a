"""The bounded queue of lines to send to one client. No I/O.

Answers are never dropped; the server stops reading the client's requests while the queue is ``full``. When event lines
exceed the limit, all of them are dropped and replaced by one ``resync``. Only the newest snapshot is kept.
"""

from __future__ import annotations

from collections import deque

from liverl.control.messages import encode_line


class Outbox:
    """The lines that wait for one client. ``limit``: bytes of event lines, and bytes of answers above which it is
    full. A single line may be longer if no other waits."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._answers: deque[bytes] = deque()
        self._answer_bytes = 0
        self._events: deque[bytes] = deque()
        self._event_bytes = 0
        self._snapshot: bytes | None = None
        self._farewell: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes in the queue, all kinds together."""
        rest = len(self._snapshot or b"") + len(self._farewell or b"")
        return self._answer_bytes + self._event_bytes + rest

    @property
    def full(self) -> bool:
        """Whether answers exceed the limit, so that no further request of the client may be read."""
        return self._answer_bytes > self.limit

    def answer(self, line: bytes) -> None:
        """Queue the answer to a request, whatever the limit."""
        self._answers.append(line)
        self._answer_bytes += len(line)

    def event(self, line: bytes, seq: int) -> None:
        """Queue the line of the event ``seq``, or drop all event lines if the limit is exceeded."""
        if self._events and self._event_bytes + len(line) > self.limit:
            self.resync(seq)
        else:
            self._events.append(line)
            self._event_bytes += len(line)

    def resync(self, seq: int) -> None:
        """Drop event lines and snapshot, and queue a ``resync``: the client must request the events up to ``seq``."""
        line = encode_line({"resync": {"seq": seq}})
        self._events.clear()
        self._events.append(line)
        self._event_bytes = len(line)
        self._snapshot = None

    def snapshot(self, line: bytes) -> None:
        """Queue a snapshot in place of one that still waits."""
        self._snapshot = line

    def farewell(self, line: bytes) -> None:
        """Set the line that is sent after all others."""
        self._farewell = line

    def take(self) -> bytes | None:
        """Remove and return the next line to send, or None. Answers come first, then events, the snapshot (whose state
        includes those events), and the farewell."""
        line: bytes | None
        if self._answers:
            line = self._answers.popleft()
            self._answer_bytes -= len(line)
        elif self._events:
            line = self._events.popleft()
            self._event_bytes -= len(line)
        elif self._snapshot is not None:
            line, self._snapshot = self._snapshot, None
        else:
            line, self._farewell = self._farewell, None
        return line
