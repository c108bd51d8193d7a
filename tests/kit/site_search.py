"""What MkDocs calls after it has built the site: one letter of its search is corrected.

lunr, the search of mkdocs-material, keeps the words of all pages as an automaton, in which states count as equal that
have the same text: letter and number of each next state, one after the other. So "1" to state 23 is "12" to state 3,
and on a site with many numbers whole words are exchanged for others: `exit code 3` found nothing. A comma between
them tells them apart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_WORKERS = "assets/javascripts/workers/search.*.js"
_STATE = re.compile(r"\b(\w)=\1\+(\w)\+(\w)\.id\b")


def on_post_build(config: Any) -> None:
    """Correct the search of the site that was built.

    Raises:
        ValueError: the search of this version of mkdocs-material is another one.
    """
    (worker,) = Path(config["site_dir"]).glob(_WORKERS)
    worker.write_text(told_apart(worker.read_text("utf-8")), "utf-8")


def told_apart(source: str) -> str:
    """The search worker with a comma between letter and number of a state.

    Raises:
        ValueError: there is not exactly one place for it.
    """
    corrected, places = _STATE.subn(r'\1=\1+\2+","+\3.id+","', source)
    if places != 1:
        raise ValueError(f"{places} places in the search name a state of lunr's words; expected 1")
    return corrected
