"""Launches that were written for other programs, read to a configuration of ours. Nothing of them is executed: what
only a shell could tell is listed with its line."""

from __future__ import annotations

from liverl.importing.outcome import Imported, NoScript, NothingToImport
from liverl.importing.read import Said, read_path, script_says

__all__ = ["Imported", "NoScript", "NothingToImport", "Said", "read_path", "script_says"]
