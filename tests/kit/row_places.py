"""How often a name leads to the file of a row: ``PYTHONPATH=tests:backend:. python -m kit.row_places [--all]``.

Somebody has what a row says (its text, title, cause, fix and source), and looks for the file that it belongs into by
the files' names and the comments they begin with. The files are ranked as a search engine does it: by the cosine of
words weighted by how few files have them (TF-IDF; a word's count as 1 + log, its rarity as log(files / files with it)).
The share is that of the rows whose own file is first. ``--all`` names the others, with the file that came first.

The lists of words in those comments were chosen from the same rows. So a second number has the comments without them.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import PurePosixPath

from liverl.causes.catalogue import ROWS, row_files, rows
from liverl.causes.signature import Signature

LEAST = 0.85  # of the rows
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]+")


def words(text: str) -> Counter[str]:
    """How often each word is in a text, in lower case."""
    return Counter(word.lower() for word in _WORD.findall(text))


def said(row: Signature) -> str:
    """What somebody knows who is about to add the row."""
    return " ".join((row.id, row.fires, row.title, row.cause, row.fix, row.source))


def heads(files: Mapping[str, bytes], listed: bool = True) -> dict[str, str]:
    """Program -> the name of its file, and the comment that this begins with. ``listed``: with its list of words."""
    found = {}
    for name, data in files.items():
        lines = takewhile(lambda line: line.startswith("#"), data.decode().split("\n"))
        parts = "\n".join(line.removeprefix("#").strip() for line in lines).split("\n\n")
        program = PurePosixPath(name).stem
        kept = (part for part in parts if listed or not part.startswith("Words in them:"))
        found[program] = " ".join((program.replace("-", " "), *kept))
    return found


class Finder:
    """Ranks files by the words of their heads (program -> text)."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        counts = {program: words(text) for program, text in texts.items()}
        having = Counter(word for count in counts.values() for word in count)
        self._rarity = {word: math.log(len(texts) / files) for word, files in having.items()}
        self._weights = {program: self._weighed(count) for program, count in counts.items()}

    def _weighed(self, counts: Counter[str]) -> dict[str, float]:
        weights = {word: (1 + math.log(n)) * self._rarity.get(word, 0.0) for word, n in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}

    def ranked(self, text: str) -> list[str]:
        """The programs whose heads share a word with ``text``, the nearest one first."""
        asked = self._weighed(words(text))
        scores = {
            program: sum(weight * weights.get(word, 0.0) for word, weight in asked.items())
            for program, weights in self._weights.items()
        }
        return sorted((p for p, score in scores.items() if score > 0), key=lambda p: (-scores[p], p))


def misplaced(finder: Finder, signatures: Iterable[Signature]) -> list[tuple[Signature, str]]:
    """The rows whose file does not come first, with the program that does; empty if none has a word of it."""
    firsts = ((row, next(iter(finder.ranked(said(row))), "")) for row in signatures)
    return [(row, first) for row, first in firsts if first != row.printer]


def share(finder: Finder, signatures: Iterable[Signature]) -> float:
    """The share of the rows whose own file comes first."""
    asked = list(signatures)
    return 1 - len(misplaced(finder, asked)) / len(asked)


def main() -> None:
    """Print both shares, and with ``--all`` each row that is looked for elsewhere."""
    files = row_files(ROWS)
    finder = Finder(heads(files))
    if "--all" in sys.argv[1:]:
        for row, first in misplaced(finder, rows()):
            print(f"{row.printer:18} {first or 'nowhere':18} {row.id}")
    bare = share(Finder(heads(files, listed=False)), rows())
    print(
        f"{len(rows())} rows, {len(files)} files: a name leads to the right file for {share(finder, rows()):.1%}"
    )
    print(f"by the names and the descriptions alone, without the lists of words: {bare:.1%}")


if __name__ == "__main__":
    main()
