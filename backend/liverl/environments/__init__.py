"""Named Python environments: an existing one is checked, a described one is built once into a cache.

LiteLLM, vLLM and our own packages cannot share one environment (they disagree about ``rich`` and
``transformers``), so each component runs in its own, and starts by path.
"""

from __future__ import annotations

from liverl.environments.build import ensure
from liverl.environments.errors import BuildError
from liverl.environments.resolve import EnvPlan, resolve
from liverl.util.paths import default_cache_dir

__all__ = ["BuildError", "EnvPlan", "default_cache_dir", "ensure", "resolve"]
