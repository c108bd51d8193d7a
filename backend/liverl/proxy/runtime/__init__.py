"""Code that runs in LiteLLM's own environment: imports the standard library, uvicorn and litellm, and of
``liverl`` only the files of ``liverl.util`` that ``runner.SHARED`` names.

``runner.py`` loads this directory as the package ``liverl_runtime``, the name used for its hooks in the
generated configuration.
"""
