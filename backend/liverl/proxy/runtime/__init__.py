"""Code that runs in LiteLLM's own environment: imports the standard library, uvicorn and litellm, never
``liverl``.

``runner.py`` loads this directory as the package ``liverl_runtime``, the name used for its hooks in the
generated configuration.
"""
