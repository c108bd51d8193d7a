"""A file that a command is asked to write, and that must not be there yet."""

from __future__ import annotations

from pathlib import Path

from liverl.exit_codes import ExitCode
from liverl_tui.text.errors import CliError


def write_new(output: Path, text: str | bytes) -> None:
    """Write ``text`` to a file that does not exist.

    Raises:
        CliError: there is such a file, or it cannot be written.
    """
    from liverl.util.atomic_file import create

    try:
        with create(output) as file:
            file.write(text.encode() if isinstance(text, str) else text)
    except FileExistsError:
        raise CliError(f"{output} exists; name a new file", ExitCode.USAGE) from None
    except OSError as error:
        raise CliError(f"{output}: {error.strerror or error}", ExitCode.USAGE) from None
