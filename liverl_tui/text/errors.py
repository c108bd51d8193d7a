"""The exception of the command line and of the interface's settings."""

from __future__ import annotations

from liverl.exit_codes import ExitCode


class CliError(Exception):
    """An error with a message for the user (``str()``); the program exits with ``exit_code``."""

    def __init__(self, message: str, exit_code: int = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
