"""What runs inside LiteLLM's own environment: standard library, uvicorn and litellm only, nothing of ours.

``runner.py`` loads this folder as the package ``liverl_runtime``; the generated configuration names its hooks
that way. Nothing here may import ``liverl``.
"""
