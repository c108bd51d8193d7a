"""Errors of the command line itself."""

from __future__ import annotations

from liverl.exit_codes import ExitCode


class CliError(Exception):
    """``str()`` is the message for the user; the program exits with ``exit_code``."""

    def __init__(self, message: str, exit_code: int = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
