"""Check ``ui.keys`` of a configuration before a run has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl_tui.app.settings import table_with

if TYPE_CHECKING:
    from liverl.config import LoadedConfig
    from liverl_tui.keys.key import Key


def table_of(loaded: LoadedConfig) -> tuple[Key, ...]:
    """The table of keys with those of ``loaded``.

    Raises:
        CliError: they cannot be used; the message says where they were set.
    """
    keys = loaded.config.ui.keys
    return table_with(keys, {key: loaded.origins.get(f"ui.keys.{key}", loaded.source) for key in keys})
