"""The LiteLLM proxy of a run: its configuration, keys, and the code that runs inside it (``runtime``)."""
