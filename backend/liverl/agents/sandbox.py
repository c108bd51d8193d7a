"""The sandbox of a trial: tool calls act on one directory and on nothing outside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from liverl.agents.tasks import SUBMITTED
from liverl.agents.tools import SUBMIT, TOOLS
from liverl.util.modes import DIRECTORY
from liverl.util.regular_file import overwrite, read_text

_MAX_READ = 8192  # maximum characters returned by one read


class ToolError(Exception):
    """A failed tool call; the tool returns ``error: <message>``."""


class Sandbox:
    """Tools that act on the files under ``root``."""

    definitions = TOOLS
    last = SUBMIT

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: set[Path] = set()
        self._tools: dict[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "replace_text": self._replace_text,
            "move_file": self._move_file,
            "submit": self._submit,
        }

    def prepare(self, files: Mapping[str, str]) -> None:
        """Create the directory with ``files`` (path -> text).

        Raises:
            OSError: they cannot be written.
        """
        for name, text in {"": None, **files}.items():
            path = self.root / name
            if text is None:
                path.mkdir(mode=DIRECTORY, parents=True)
            else:
                path.parent.mkdir(mode=DIRECTORY, exist_ok=True)
                overwrite(path, text.encode(), inside=self.root.parent)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the observation of one tool call; ``error: <why>`` if it fails."""
        tool = self._tools.get(name)
        if tool is None:
            return f"error: there is no tool {name}"
        try:
            return tool(**arguments)
        except TypeError:
            return f"error: {name} cannot be called with: {', '.join(sorted(arguments)) or 'no argument'}"
        except ToolError as error:
            return f"error: {error}"
        except OSError as error:
            return f"error: {error.strerror or error}"
        except ValueError as error:  # null byte in a name, binary file, lone surrogate
            return f"error: {error}"

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """See ``liverl.agents.loop.Tools``."""
        return self.call(name, arguments)

    def not_called(self, name: str) -> None:
        """See ``Tools.not_called``."""

    def _path(self, name: str) -> Path:
        if not isinstance(name, str) or not name:
            raise ToolError("a path must not be empty")
        path = Path(os.path.normpath(self.root / name))
        # The tools never create links, so a lexical check is enough.
        if path != self.root and self.root not in path.parents:
            raise ToolError(f"{name} is outside the working directory")
        return path

    def _list_files(self, path: str) -> str:
        directory = self._path(path)
        if not directory.is_dir():
            raise ToolError(f"{path} is not a directory")
        return "\n".join(sorted(p.name + ("/" if p.is_dir() else "") for p in directory.iterdir()))

    def _read_file(self, path: str) -> str:
        file = self._path(path)
        if not file.is_file():
            raise ToolError(f"{path} is not a file")
        self._read.add(file)
        return read_text(file, errors="replace", inside=self.root.parent)[:_MAX_READ]

    def _write_file(self, path: str, content: str) -> str:
        file = self._path(path)
        if file.exists():
            raise ToolError(f"{path} already exists")
        if not file.parent.is_dir():
            raise ToolError(f"there is no directory for {path}")
        overwrite(file, str.encode(content), inside=self.root.parent)
        return f"wrote {len(content)} characters"

    def _replace_text(self, path: str, old: str, new: str) -> str:
        file = self._path(path)
        if file not in self._read:
            raise ToolError(f"read {path} first")
        text = read_text(file, inside=self.root.parent)
        if not old or old not in text:
            raise ToolError(f"the old text is not in {path}")
        overwrite(file, text.replace(old, new, 1).encode(), inside=self.root.parent)
        return "replaced"

    def _move_file(self, source: str, destination: str) -> str:
        old, new = self._path(source), self._path(destination)
        if not old.is_file():
            raise ToolError(f"{source} is not a file")
        if not new.parent.is_dir() or new.exists():
            raise ToolError(f"cannot move to {destination}")
        old.rename(new)
        return "moved"

    def _submit(self) -> str:
        overwrite(self.root / SUBMITTED, b"", inside=self.root.parent)
        return "submitted"


class EmptySandbox(Sandbox):
    """Tools that do nothing and return nothing, as in a run without a configured executor."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return an empty observation."""
        return ""
