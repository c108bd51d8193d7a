"""Somebody who holds a line finds the file that its row belongs into: by the files' names and what they begin with."""

from __future__ import annotations

from collections import Counter

from kit.row_places import LEAST, Finder, heads, misplaced, share

from liverl.causes.catalogue import ROWS, row_files, rows


def test_a_name_leads_to_the_file_of_most_rows() -> None:
    finder = Finder(heads(row_files(ROWS)))
    elsewhere = Counter((row.printer, first) for row, first in misplaced(finder, rows()))
    assert share(finder, rows()) >= LEAST, elsewhere.most_common(10)


def test_the_measure_falls_if_rows_stand_elsewhere() -> None:
    """With the heads of two files exchanged, their rows are looked for in the other one."""
    texts = heads(row_files(ROWS))
    asked = [row for row in rows() if row.printer in ("ray", "docker")]
    texts["ray"], texts["docker"] = texts["docker"], texts["ray"]
    assert share(Finder(texts), asked) < 0.1


def test_a_file_of_no_words_is_found_by_nobody() -> None:
    finder = Finder({"ray": "ray raylet", "docker": "docker dockerd"})
    assert finder.ranked("a raylet ended") == ["ray"]
    assert finder.ranked("nothing of them") == []
