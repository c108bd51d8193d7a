"""verl 0.9.1 plug-in: a checkpoint before the end of the batch job, and when somebody asks for one.

verl's v1 trainers save every ``trainer.save_freq`` steps only: ``trainer.esi_redundant_time`` and the variables of
capacity blocks, which the other trainers know (``should_save_ckpt_esi``), have no effect there (trainer_base.py:481).
Changed are ``step`` and ``_save_checkpoint`` of their base class, once its module is imported: a checkpoint that is due
is saved where verl saves its own, right behind the step.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from liverl.util.before_end import VARIABLE, Saves, saves_of

logger = logging.getLogger(__name__)

MODULE = "verl.trainer.ppo.v1.trainer_base"
_SAVES = "_liverl_saves"  # attribute of a trainer


def wrap(trainer: Any) -> None:
    """Make a class of trainers save when ``Saves`` says so. ``trainer``: verl's class ``PPOTrainer``."""
    step, save = trainer.step, trainer._save_checkpoint

    @functools.wraps(step)
    def stepped(self: Any, metrics: Any, timing_raw: Any, *more: Any, **fields: Any) -> Any:
        saves = _saves(self)
        if saves is None:
            return step(self, metrics, timing_raw, *more, **fields)
        saves.step_begins()
        batch = step(self, metrics, timing_raw, *more, **fields)
        if _saves_itself(self):
            saves.regular_save_follows()
        elif words := saves.why():
            print(f"liverl: saving a checkpoint at step {self.global_steps}: {words}", flush=True)
            began = time.monotonic()
            self._save_checkpoint()
            timing_raw["save_checkpoint"] = time.monotonic() - began
        return batch

    @functools.wraps(save)
    def saved(self: Any, *more: Any, **fields: Any) -> Any:
        began = time.monotonic()
        result = save(self, *more, **fields)
        saves = _saves(self)
        if saves is not None:
            saves.saved(time.monotonic() - began)
        return result

    trainer.step, trainer._save_checkpoint = stepped, saved


def _saves(trainer: Any) -> Saves | None:
    if not hasattr(trainer, _SAVES):
        setattr(trainer, _SAVES, saves_of(regular=trainer.config.trainer.save_freq > 0))
    found: Saves | None = getattr(trainer, _SAVES)
    return found


def _saves_itself(trainer: Any) -> bool:
    """verl's own condition (trainer_base.py:481)."""
    every, step = int(trainer.config.trainer.save_freq), int(trainer.global_steps)
    return every > 0 and (step >= int(trainer.total_training_steps) or step % every == 0)


class _OnImport(importlib.abc.MetaPathFinder):
    """Wraps the class once the module is imported: this plug-in is loaded in all of verl's processes, and most of them
    never import it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                install(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def install(module: ModuleType) -> None:
    """Wrap the class of ``module``; another version of verl may have none, and trains without it."""
    try:
        wrap(module.PPOTrainer)
    except AttributeError as error:
        logger.error("no checkpoint is saved before the end of the batch job: this verl has %s", error)


def _begin() -> None:
    if not os.environ.get(VARIABLE):
        return
    if (module := sys.modules.get(MODULE)) is not None:
        install(module)
    else:
        sys.meta_path.insert(0, _OnImport())


_begin()
