"""Check what only the interface reads of a configuration, ``ui.theme`` and ``ui.keys``, before a run has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.exit_codes import ExitCode
from liverl_tui.app.settings import table_with
from liverl_tui.text.errors import CliError
from liverl_tui.text.theme_names import theme_problem

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl_tui.keys.key import Key


def check_interface(loaded: LoadedConfig) -> None:
    """Check that the interface can use its section of the configuration.

    Raises:
        CliError: it cannot; the message says where each value was set.
    """
    theme = theme_problem(loaded.config.ui.theme)
    if theme:
        where = loaded.origins.get("ui.theme", loaded.source)
        raise CliError(f"{where}: ui.theme: {theme}", ExitCode.USAGE)
    table_of(loaded)


def table_of(loaded: LoadedConfig) -> tuple[Key, ...]:
    """The table of keys with those of ``loaded``.

    Raises:
        CliError: they cannot be used; the message says where they were set.
    """
    keys = loaded.config.ui.keys
    return table_with(keys, {key: loaded.origins.get(f"ui.keys.{key}", loaded.source) for key in keys})
