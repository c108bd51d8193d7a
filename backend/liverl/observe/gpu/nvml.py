"""Loading NVML, and asking it: an answer, or why there is none in words."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

from liverl.control.gpu_detail import Reading

_WHY = {  # NVML's error codes, in words for people
    2: "not supported",  # invalid argument: this GPU does not have what was asked for
    3: "not supported",
    4: "no permission",
    6: "not found",
    13: "the driver is too old",
    15: "the GPU is lost: it has fallen off the bus or has become inaccessible",
    16: "the GPU needs a reset",
    25: "the driver does not know this version of the question",
}
# The member of NVML's value union, by value type.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def open_nvml(given: Any = None) -> tuple[Any, str]:
    """Load and initialize NVML; return (pynvml, "") or (None, why not). Each success needs one ``nvmlShutdown``.

    ``given``: a module to use as pynvml, which is else imported only if the NVML library exists.
    """
    nvml = given
    if nvml is None:
        try:
            ctypes.CDLL("libnvidia-ml.so.1")  # do not import pynvml on machines without NVML
            nvml = importlib.import_module("pynvml")
        except OSError:
            return None, "no NVIDIA driver"
        except ImportError:
            return None, "the Python package nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return None, str(error)
    return nvml, ""


class Questions:
    """Asks NVML. No answer raises: a question that fails has a reason instead."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def ask(self, name: str, *args: Any) -> tuple[Any, str]:
        """Return (answer of the function ``name``, ""), or (None, why there is none)."""
        question = getattr(self.nvml, name, None)
        if question is None:
            return None, "the package nvidia-ml-py is too old"
        try:
            return question(*args), ""
        except self.nvml.NVMLError as error:
            return None, why(error)

    def reading(self, name: str, *args: Any, scale: float = 1.0) -> Reading:
        """The number that the function ``name`` returns, times ``scale``."""
        answer, reason = self.ask(name, *args)
        return Reading(why=reason) if reason else Reading(float(answer) * scale)

    def fields(self, handle: Any, fields: Sequence[tuple[int, int]]) -> list[Reading]:
        """The values of NVML's field ids, each with a scope (a link's number, else 0)."""
        answers, reason = self.ask("nvmlDeviceGetFieldValues", handle, list(fields))
        if reason:
            return [Reading(why=reason)] * len(fields)
        return [self._field(answer) for answer in answers]

    def _field(self, answer: Any) -> Reading:
        if answer.nvmlReturn:
            return Reading(why=why(self.nvml.NVMLError(answer.nvmlReturn)))
        if answer.valueType >= len(_MEMBERS):
            return Reading(why="a value of an unknown type")
        return Reading(float(getattr(answer.value, _MEMBERS[answer.valueType])))


def why(error: Any) -> str:
    """An NVMLError in words."""
    return _WHY.get(error.value, str(error))
