"""The values that vLLM takes for ``--tool-call-parser``."""

from __future__ import annotations

from liverl.engines.tool_formats import FORMATS

# Those that vLLM lists (version 0.24 and later) beside the parsers of ``FORMATS``: of formats that are not told apart.
_OTHERS = """
cohere_command3 cohere_command4 ernie45 gigachat3 hf hunyuan_a13b hy_v3 hy_v4 inkling k2_horizon kimi_k3 mimo
muse_glimmer plamo3
"""
TOOL_PARSERS = tuple(sorted({*_OTHERS.split(), *(name for form in FORMATS for name in form.readers)}))
