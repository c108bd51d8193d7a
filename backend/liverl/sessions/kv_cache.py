"""How full a replica's KV cache is, by its ``/metrics``. Pure."""

from __future__ import annotations

import math
import re

from liverl.sessions.admission import KvCache

USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
)  # the present name, and that of older versions
CONFIG = "vllm:cache_config_info"
_LABEL = re.compile(r'\b(\w+)="([^"]*)"')


def read_kv_cache(page: str) -> KvCache | None:
    """The reading in a page in Prometheus' text format; None without one. Of several engines behind one server: the
    mean of the usage, the sum of the capacities."""
    usages: dict[str, list[float]] = {name: [] for name in USAGE}
    capacities: list[int | None] = []
    for line in page.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in usages:
            value = _number(line.rpartition(" ")[2])
            usages[name] += [] if value is None else [value]
        elif name == CONFIG:
            capacities.append(_capacity(dict(_LABEL.findall(line))))
    values = next(filter(None, usages.values()), None)
    if values is None:
        return None
    known = [each for each in capacities if each]
    return KvCache(sum(values) / len(values), sum(known) if known and len(known) == len(capacities) else None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _capacity(labels: dict[str, str]) -> int | None:
    """Tokens that fit; None where the engine does not say, such as before it has measured its memory."""
    size, blocks = labels.get("block_size", ""), labels.get("num_gpu_blocks", "")
    return int(size) * int(blocks) if size.isdecimal() and blocks.isdecimal() else None
