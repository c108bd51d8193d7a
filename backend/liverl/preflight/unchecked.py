"""What the checks of a plan do not look at, so that nobody takes a plan without a fault for a run without one."""

from __future__ import annotations

from collections.abc import Iterator

from liverl.config import sizing
from liverl.config.schema import RunConfig
from liverl.model import Unchecked
from liverl.plan.spec import Plan
from liverl.preflight.verl import UNREAD, interpreter
from liverl.util import redact

_HOST = "up checks ports, disk, open files, GPUs and Ray on the host of the run"
_SCRIPT = (
    "{command} chooses model, data, sizes and environment itself; only program, file and folder are checked"
)


def unchecked(plan: Plan, config: RunConfig) -> Iterator[Unchecked]:
    """What is not checked before the start of a run with this plan, or only by ``up``."""
    yield Unchecked("host", _HOST)
    if config.trainer.kind == "command":
        yield Unchecked(
            "what the script starts",
            _SCRIPT.format(command=" ".join(redact.command(config.trainer.command or ()))),
        )
    elif config.trainer.kind == "verl":
        if interpreter(plan) is None:
            if sizing.train_file(config):
                yield Unchecked("data rows", UNREAD)
            if config.trainer.overrides:
                yield Unchecked(
                    "trainer.overrides", "the keys cannot be checked: there is no verl environment yet"
                )
            yield Unchecked("environment verl", "there is none yet; up builds it before the start")
        if not sizing.model_path(config).startswith("/"):
            yield Unchecked("model", f"{sizing.model_path(config)} is a model id; verl downloads it")
    elif plan.engine == "vllm":
        yield Unchecked("model", f"{config.model.model_path} is read by vLLM when a replica starts")
