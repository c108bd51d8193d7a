"""The one error of this package."""

from __future__ import annotations


class BuildError(Exception):
    """An environment cannot be used or built. The text is for the user: what, why, what to do.

    ``output`` holds the last lines of the installer (``tool``), with the addresses of package indexes replaced.
    """

    def __init__(self, text: str, output: tuple[str, ...] = (), tool: str = "uv") -> None:
        super().__init__("\n".join([text, *(f"  {tool}: {line}" for line in output)]))
        self.text = text
        self.output = output
        self.tool = tool
