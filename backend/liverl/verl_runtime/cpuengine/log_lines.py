"""How the engine logs."""

from __future__ import annotations

import logging


class LikeVllm(logging.Formatter):
    """``INFO 11-21 00:19:15 [core.py:34] text``, with the head on every line, also of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record, without a line end."""
        stamp = self.formatTime(record, "%m-%d %H:%M:%S")
        head = f"{record.levelname} {stamp} [{record.filename}:{record.lineno}] "
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return "\n".join(head + line for line in text.split("\n"))
