"""Makes sure that what was put together loads: what our own checks refuse is taken out again, and told."""

from __future__ import annotations

import tempfile
from pathlib import Path

from liverl.config import ConfigError, load_config
from liverl.config.consumers import inert_keys
from liverl.importing.batches import fill
from liverl.importing.builder import Builder
from liverl.importing.values import Place
from liverl.util.atomic_file import write_atomic

NOT_SET = "/set/the/model"  # in the place of a model that the source does not tell: the checks then refuse it
_MOST = 100  # rounds: each takes out one key at least


class NotLoadable(Exception):
    """What was read does not make a configuration; the message says which key is missing or wrong."""


def loadable(builder: Builder, head: str, place: Place) -> list[tuple[str, str, str]]:
    """Take out what does not load. Returns the keys that were taken and have no effect here: key, place, why. Where
    then our own batch is refused, others are set, as from ``place``.

    Raises:
        NotLoadable: something is wrong that was not read.
    """
    builder.head = head
    with tempfile.TemporaryDirectory(prefix="liverl-import-") as folder:
        file = Path(folder, "config.yaml")
        for _ in range(_MOST):
            write_atomic(file, builder.yaml().encode())
            try:
                loaded = load_config(file, env={}, read_secrets=False)
            except ConfigError as error:
                dropped = [builder.drop(problem.key, problem.sentence) for problem in error.problems]
                if not any(dropped) and not fill(builder, place):
                    raise NotLoadable("; ".join(problem.sentence for problem in error.problems)) from None
                continue
            return [
                (one.key, str(builder.values[one.key].place), one.why)
                for one in inert_keys(loaded.config, loaded)
                if one.key in builder.values
            ]
    raise AssertionError("each round takes out a key")
