"""Errors of the command line itself."""

from __future__ import annotations


class CliError(Exception):
    """``str()`` is the message for the user; the program exits with ``exit_code``."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
