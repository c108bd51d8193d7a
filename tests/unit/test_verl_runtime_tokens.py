"""The training row that is put together from a trial's replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.verl_runtime.tokens import Assembly, Divergence, Row

IDS = st.integers(0, 5)  # few, so that a changed prefix often looks like the old one for a while
Turn = tuple[list[int], list[int], list[float]]  # prompt, reply, logprobs


@st.composite
def trials(draw: st.DrawFn, exact: bool) -> list[Turn]:
    """The turns of a conversation whose prompts, if not ``exact``, may change what went before."""
    turns: list[Turn] = []
    before: list[int] = []
    for number in range(draw(st.integers(1, 6))):
        prompt = before + draw(st.lists(IDS, min_size=0 if number else 1, max_size=4))
        if number and not exact and draw(st.integers(0, 3)) == 0:
            cut = draw(st.integers(0, len(prompt) - 1))
            prompt = prompt[:cut] + draw(st.lists(IDS, min_size=1, max_size=4))
        reply = draw(st.lists(IDS, min_size=1, max_size=5))
        logprobs = [-1.0 - len(turns) * 10 - position for position in range(len(reply))]
        turns.append((prompt, reply, logprobs))
        before = prompt + reply
    return turns


def assemble(turns: list[Turn]) -> Assembly:
    assembly = Assembly()
    for turn in turns:
        assembly.add(*turn)
    return assembly


def check(turns: list[Turn], assembly: Assembly, limit: int) -> None:
    """Every token of the row with mask 1 was sampled from exactly what stands before it in the row."""
    row = assembly.row(limit)
    assert row is not None  # the first reply always fits
    assert row.prompt == turns[0][0]
    assert len(row.response) == len(row.mask) == len(row.logprobs) <= limit
    assert row.mask[0] == row.mask[-1] == 1
    whole = row.prompt + row.response
    claimed = set()
    for prompt, reply, logprobs in turns[: assembly.turns_kept]:
        assert whole[: len(prompt)] == prompt[: len(whole)]
        for offset, (token, logprob) in enumerate(zip(reply, logprobs, strict=True)):
            place = len(prompt) + offset - len(row.prompt)
            if place < len(row.mask):
                assert (row.response[place], row.logprobs[place]) == (token, logprob)
                claimed.add(place)
    assert claimed == {place for place, bit in enumerate(row.mask) if bit}
    assert all(row.logprobs[place] == 0.0 for place, bit in enumerate(row.mask) if not bit)


@given(trials(exact=True), st.integers(1, 60))
def test_a_conversation_that_only_grows_is_kept_whole(turns: list[Turn], limit: int) -> None:
    assembly = assemble(turns)
    assert assembly.divergences == [] and assembly.turns_kept == assembly.turns == len(turns)
    check(turns, assembly, limit)
    row = assembly.row(10_000)
    assert row is not None and row.prompt + row.response == turns[-1][0] + turns[-1][1]
    assert assembly.response_length == len(row.response)
    assert sum(row.mask) == sum(len(reply) for _, reply, _ in turns)


@given(trials(exact=False), st.integers(1, 60))
def test_a_changed_prefix_ends_the_row_where_it_was_still_exact(turns: list[Turn], limit: int) -> None:
    assembly = assemble(turns)
    check(turns, assembly, limit)
    broken = [
        number
        for number in range(1, len(turns))
        if turns[number][0][: len(turns[number - 1][0] + turns[number - 1][1])]
        != turns[number - 1][0] + turns[number - 1][1]
    ]
    assert [found.turn for found in assembly.divergences] == broken
    assert assembly.turns_kept == (broken[0] if broken else len(turns))
    for found in assembly.divergences:
        before = turns[found.turn - 1][0] + turns[found.turn - 1][1]
        now = turns[found.turn][0]
        assert found.expected == len(before)
        assert now[: found.position] == before[: found.position]
        assert now[found.position : found.position + 1] != before[found.position : found.position + 1]


def test_an_example() -> None:
    assembly = Assembly()
    assembly.add([1, 2], [3, 4], [-0.1, -0.2])
    assembly.add([1, 2, 3, 4, 9, 9], [5], [-0.3])
    assert assembly.row(99) == Row([1, 2], [3, 4, 9, 9, 5], [1, 1, 0, 0, 1], [-0.1, -0.2, 0.0, 0.0, -0.3])
    assert assembly.row(4) == Row([1, 2], [3, 4], [1, 1], [-0.1, -0.2])  # no row ends with an observation
    assembly.add([1, 2, 3, 7, 9, 9, 5, 8], [6], [-0.4])  # a 4 was read back as a 7
    assembly.add([1, 2, 3, 7, 9, 9, 5, 8, 6, 8], [6], [-0.5])
    assert assembly.divergences == [Divergence(turn=2, position=3, expected=7)]
    assert (assembly.turns, assembly.turns_kept) == (4, 2)
    assert assembly.row(99) == Row([1, 2], [3, 4, 9, 9, 5], [1, 1, 0, 0, 1], [-0.1, -0.2, 0.0, 0.0, -0.3])


@pytest.mark.parametrize(
    ("mask", "turns"),
    [([1], 1), ([1, 1], 1), ([1, 0, 1], 2), ([1, 1, 0, 0, 1, 1, 0, 1], 3), ([0, 1], 1), ([], 0)],
)
def test_a_run_of_sampled_tokens_is_a_turn(mask: list[int], turns: int) -> None:
    assert Row([1], [5] * len(mask), mask, [0.0] * len(mask)).turns == turns


def test_without_a_turn_there_is_no_row() -> None:
    assert Assembly().row(10) is None


@pytest.mark.parametrize("turn", [([], [1], [0.0]), ([1], [], []), ([1], [1, 2], [0.0])])
def test_what_cannot_be_placed_is_refused(turn: Turn) -> None:
    assembly = Assembly()
    with pytest.raises(ValueError, match="log-probabilities"):
        assembly.add(*turn)
    assert assembly.turns == 0
