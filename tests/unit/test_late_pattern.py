"""A pattern that is compiled at its first use."""

from __future__ import annotations

import re

import pytest

from liverl.util.late_pattern import late_pattern


def test_it_answers_as_the_pattern_does() -> None:
    late, usual = late_pattern(r"(?P<n>\d+)b", re.IGNORECASE), re.compile(r"(?P<n>\d+)b", re.IGNORECASE)
    text = "1B 22b"
    for _ in range(2):  # the second time without looking the name up
        assert [m.span() for m in late.finditer(text)] == [m.span() for m in usual.finditer(text)]
        found = late.search(text, 2)
        assert found is not None and found["n"] == "22"
        assert late.match("b") is None and late.sub("", text) == " "
    assert (late.pattern, late.flags, late.groupindex) == (usual.pattern, usual.flags, usual.groupindex)


def test_it_is_compiled_at_its_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    real = re.compile

    def counting(pattern: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(pattern)
        return real(pattern, flags)

    monkeypatch.setattr(re, "compile", counting)
    late = late_pattern("a+")
    assert compiled == []
    assert late.fullmatch("aa") and late.fullmatch("aaa") and not late.fullmatch("b")
    assert compiled == ["a+"]


def test_what_is_no_regular_expression_is_told_at_its_use() -> None:
    late = late_pattern("(")
    with pytest.raises(re.error, match="missing"):
        late.search("x")
