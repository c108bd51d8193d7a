"""``up --like RUN``: the configuration of an earlier run as the start of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from liverl.exit_codes import ExitCode
from liverl.rundir.index import find_run
from liverl.rundir.layout import RunDir
from liverl.util.plural import quantity
from liverl_tui.text.errors import CliError
from liverl_tui.text.words import one_line

if TYPE_CHECKING:
    from liverl.config import LoadedConfig


# Settings that forget what only names the earlier run. Its root is kept.
NAMES = ("run.name=", "experiment.exp_name=")


@dataclass(frozen=True)
class Like:
    """The run that another one is to be like."""

    run: RunDir
    loaded: LoadedConfig

    @staticmethod
    def of(name: Path, run_root: Path | None) -> Like:
        """The run ``name``, a directory, ``project/name`` or a name.

        Raises:
            RunLookupError: there is no such run, or several match.
            CliError: it has no configuration that this version reads.
        """
        from liverl.config import ConfigError, load_config

        run = find_run(name, run_root)
        try:
            return Like(run, load_config(run.config, env={}, read_secrets=False))
        except (ConfigError, OSError) as error:
            raise CliError(
                f"--like {name}: the configuration of run {run.name} cannot be read: {error}", ExitCode.USAGE
            ) from error

    @property
    def file(self) -> Path:
        """The saved configuration."""
        return self.run.config

    def without(self, sets: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """The keys that are not taken from the file: secrets that somebody has written into it, because those of this
        shell count as for every new run, and one of the two keys for the trainer's mode where ``sets`` or ``env`` give
        the other.

        ``sets``: those of the user; ``env``: the environment of this process.
        """
        from liverl.config.checks.managed import other_modes
        from liverl.config.env_vars import SECRET_KEYS
        from liverl.config.layers import from_environment, from_sets

        written = (key for key in SECRET_KEYS if getattr(self.loaded.secrets, key.rpartition(".")[2]))
        theirs, ours, _ = from_environment(env)
        return (*written, *other_modes(theirs.settings | ours.settings | from_sets(sets).settings))

    def differences(self, loaded: LoadedConfig) -> tuple[str, ...]:
        """In which keys the new run differs, in lines; the name and place of a run are no difference. Values of secrets
        are not shown."""
        return tuple(self._lines(loaded))

    def _lines(self, loaded: LoadedConfig) -> Iterator[str]:
        from msgspec.structs import replace

        from liverl.config.changes import changes, names_the_run
        from liverl.config.in_effect import effect_words

        found = [one for one in changes(self.loaded.config, loaded) if not names_the_run(one.key)]
        if not found:
            yield f"like run {self.run.name}, with the same configuration (keys and passwords are never copied)"
            return
        count = quantity(len(found), "other value")
        yield f"like run {self.run.name}, with {count} (keys and passwords are never copied):"
        for one in found:
            before = effect_words(self.loaded.config, one.key, one.before)
            after = effect_words(loaded.config, one.key, one.after)
            told = replace(one, before=before or one.before, after=after or one.after)
            yield f"  {one_line(told.words)}"
