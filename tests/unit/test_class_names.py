"""One name per class inside a room: whoever reads ``Answer`` need not look which one is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_public_classes_of_a_folder_have_one_name() -> None:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for base in ("backend/liverl", "liverl_tui"):
        for file in (ROOT / base).rglob("*.py"):
            for name in re.findall(r"^class ([A-Za-z]\w*)", file.read_text("utf-8"), re.MULTILINE):
                found[str(file.parent.relative_to(ROOT)), name].append(file.name)
    assert len(found) > 500
    assert {place: files for place, files in found.items() if len(files) > 1} == {}
