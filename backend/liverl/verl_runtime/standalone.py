"""verl 0.9.1 plugin for replicas on their own GPUs: works around a logging error of verl.

Its trainer_mode separate_async without hybrid replicas (``hybrid_engine=False``) logs the number of replicas
with a ``flush`` argument, which only ``print`` accepts (trainer_separate_async.py:181), and exits with
``TypeError: Logger._log() got an unexpected keyword argument 'flush'`` at every level that shows the line.
"""

from __future__ import annotations

import logging
from typing import Any

LOGGER = "verl.trainer.ppo.v1.trainer_separate_async"


class Forgiving(logging.Logger):
    """A logger that accepts and ignores ``flush``."""

    def _log(self, *args: Any, flush: object = None, **more: Any) -> None:
        super()._log(*args, **{**more, "stacklevel": more.get("stacklevel", 1) + 1})


logging.getLogger(LOGGER).__class__ = Forgiving
