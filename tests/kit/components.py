"""The components that tests run, as the packaged configuration has them."""

from __future__ import annotations

from liverl.config import load_config
from liverl.plan.build import environment_spec
from liverl.plan.spec import EnvironmentSpec

_DEFAULTS = load_config(env={}).config
LITELLM = environment_spec(_DEFAULTS, "proxy")
RAY = EnvironmentSpec(
    "ray",
    requirements=tuple(r for r in environment_spec(_DEFAULTS, "verl").requirements if r.startswith("ray[")),
)
