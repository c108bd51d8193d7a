"""Check ``diagnosis.mute`` of a configuration before a run has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverl.exit_codes import ExitCode
from liverl_tui.text.errors import CliError

if TYPE_CHECKING:
    from liverl.config import LoadedConfig


def check_muted(loaded: LoadedConfig) -> None:
    """Check that there are alerts with the ids that the configuration mutes.

    Raises:
        CliError: there are not; the message says where they were set, and which ids are similar.
    """
    mute = loaded.config.diagnosis.mute
    if not mute:
        return
    from liverl.causes.row_files import RowsError
    from liverl.causes.site.reading import read_rules
    from liverl.diagnose.catalogue.alert_ids import OF_LOGS, unknown

    rows: tuple[str, ...] | None = None
    if loaded.config.diagnosis.rules:
        try:
            rows = tuple(row.id for row in read_rules(loaded.config.diagnosis.rules).rows)
        except RowsError:  # a check before the start says what is wrong; till then their ids are not known
            mute = tuple(alert for alert in mute if not alert.startswith(f"{OF_LOGS}:"))

    where = loaded.origins.get("diagnosis.mute", loaded.source)
    lines = [
        f"{where}: diagnosis.mute: no alert is called '{alert}'" + (f"; {hint}" if hint else "")
        for alert, hint in unknown(mute, rows)
    ]
    if lines:
        known = "docs/diagnosis.md lists the ids; the events and status --json name those of a run"
        raise CliError("\n".join([*lines, known]), ExitCode.USAGE)
