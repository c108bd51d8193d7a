"""The embedded default run: a small policy engine and a small GRPO trainer, both real, for machines without
GPUs.

``python -m liverl.embedded.engine`` has vLLM's HTTP API, start-up log and metrics; ``python -m
liverl.embedded.trainer`` trains a categorical policy by GRPO through the proxy and prints verl's step lines.
All reported numbers are measured.
"""
