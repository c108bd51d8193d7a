"""Whether the file systems answer on which model, data, environments and the run are: of one that hangs every other
check could only say that it got no answer."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping

from liverl.config import conditions as when
from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan.spec import Plan
from liverl.preflight.interpreter import environments_of
from liverl.preflight.model import named
from liverl.util.file_systems import file_system
from liverl.util.plural import quantity

NAME = "storage"
_SECONDS = 6.0  # for one stat; those of a busy network file system take less than one


def checks(plan: Plan, config: RunConfig) -> Iterator[Check]:
    """One check for each file system that does not answer; else one for all."""
    places = {what: path for what, path in _places(plan, config).items() if os.path.isabs(path)}
    waiting = {what: _Asked(path) for what, path in places.items()}
    end = time.monotonic() + _SECONDS
    for asked in waiting.values():
        asked.thread.join(max(0.0, end - time.monotonic()))
    hung: dict[str, list[str]] = {}
    for what, asked in waiting.items():
        if asked.thread.is_alive():
            its = file_system(places[what], followed=False)
            hung.setdefault(str(its or "a file system"), []).append(f"{what} ({places[what]})")
    for disk, names in hung.items():
        text = f"{disk}: no answer within {_SECONDS:g} s for {', '.join(names)}"
        fix = "see that its server and the network are up; or name a place on another disk"
        yield Check(NAME, "fail", f"{text}: a process that reads there hangs", fix=fix)
    if not hung:
        yield Check(NAME, "ok", f"{quantity(len(places), 'place')} of this run can be reached")


class _Asked:
    """A stat of a path in a thread of its own, which is left behind if it hangs."""

    def __init__(self, path: str) -> None:
        self.thread = threading.Thread(target=self._ask, args=(path,), name="storage", daemon=True)
        self.thread.start()

    def _ask(self, path: str) -> None:
        with contextlib.suppress(OSError):  # that it is not there is told by others
            os.stat(path)


def _overridden(config: RunConfig) -> dict[str, str]:
    """The data files that ``trainer.overrides`` names."""
    if not when.verl_trainer(config):
        return {}
    ours = (sizing.TRAIN_INDEX, sizing.VAL_INDEX)
    return {
        key: path for key, path in sizing.data_paths(config).items() if key not in ours and "://" not in path
    }


def _places(plan: Plan, config: RunConfig) -> Mapping[str, str]:
    """What of the run is where: key or words -> path."""
    model = named(config)
    places = {
        **_overridden(config),
        model.key: model.name,
        "data.train_index": config.data.train_index,
        "data.val_index": config.data.val_index,
        "environment.venv_path": config.environment.venv_path,
        "k8s.kubeconfig": config.k8s.kubeconfig,
        "trainer.cwd": config.trainer.cwd,
        "the run's directory": plan.run_dir,
    }
    for spec, place in environments_of(plan):
        if place.kind != "own":
            places[f"environment {spec.name}"] = str(place.python.parent.parent)
    return {what: path for what, path in places.items() if path}
