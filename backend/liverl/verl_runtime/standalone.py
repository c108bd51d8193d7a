"""Replicas on GPUs of their own under verl 0.9.1, which imports this as a plugin.

Its trainer_mode separate_async without hybrid replicas (``hybrid_engine=False``) tells their number in a line that
gives the logger a ``flush``, as only ``print`` takes it (trainer_separate_async.py:181), and ends there with
``TypeError: Logger._log() got an unexpected keyword argument 'flush'``, at every level that shows the line.
"""

from __future__ import annotations

import logging
from typing import Any

LOGGER = "verl.trainer.ppo.v1.trainer_separate_async"


class Forgiving(logging.Logger):
    """A logger that takes ``flush`` and does nothing with it."""

    def _log(self, *args: Any, flush: object = None, **more: Any) -> None:
        super()._log(*args, **{**more, "stacklevel": more.get("stacklevel", 1) + 1})


logging.getLogger(LOGGER).__class__ = Forgiving
