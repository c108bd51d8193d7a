"""The embedded default: a small real policy engine and a small real GRPO trainer for a machine without GPUs.

What SQLite is to PostgreSQL: the same interface, far less inside. ``python -m liverl.embedded.engine``
speaks vLLM's HTTP API, prints its start-up stages and exports its metrics; ``python -m
liverl.embedded.trainer`` trains a categorical policy by GRPO through the proxy and prints verl's step
lines. Every number they report is measured.
"""
