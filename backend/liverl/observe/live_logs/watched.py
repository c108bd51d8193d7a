"""Which signatures of the catalogue of causes are looked for in the logs of services that run. Pure."""

from __future__ import annotations

from liverl.causes.catalogue import SIGNATURES
from liverl.causes.signature import Signature

# They explain an end, and a process may also go on after them, waiting or failing at the same thing again.
SURVIVABLE = frozenset(
    (
        *("disk-full-path", "disk-full", "quota", "read-only-disk", "too-many-open-files"),
        *("ray-no-node-type", "ray-node-dead", "ray-gcs-unreachable", "ray-object-store-full"),
        "nccl-watchdog",
    )
)
# Counted in the trials themselves (``agents.trials_failed``), and in the requests that failed, with their message.
COUNTED = frozenset(
    ("trial-failed", "vllm-chat-refused", "vllm-chat-refused-template", "vllm-chat-refused-old")
)
# What tools of scripts and sandboxes complain of ("shell") tells nothing of a service that prints it and goes on.
WATCHED: tuple[Signature, ...] = tuple(
    one
    for one in SIGNATURES
    if (one.alive and one.component != "shell" and one.id not in COUNTED) or one.id in SURVIVABLE
)
