"""Two trials of one prompt for scripts and plain text: ``trials diff``. Read-only."""

from __future__ import annotations

import msgspec

from liverl.model import SCHEMA, Snapshot, TrialHead
from liverl.observe.trials.dumped_trajectory import reader_of
from liverl.observe.trials.message_parts import PartKind
from liverl.observe.trials.pairing import Differs, TrialPair, TurnPair, opposite, pair_of
from liverl.observe.trials.steps import heads_of_step
from liverl.observe.trials.turns import Turn
from liverl.observe.trials.verifier import VerifierReport
from liverl.offline.trials import NoSuchTrial, TrialShown, path_of, shown_of
from liverl.rundir.layout import RunDir


class PartShown(msgspec.Struct, frozen=True):
    """A piece of a turn. ``name``: of the tool that is called or has answered, else ""."""

    kind: PartKind
    name: str
    text: str


class TurnsShown(msgspec.Struct, frozen=True):
    """Turn ``number`` of both trials: what the model wrote, and what came back; None where one has no such turn.
    ``differs``: "" (they agree), words, calls, results or missing."""

    number: int
    differs: Differs
    left: tuple[PartShown, ...] | None
    right: tuple[PartShown, ...] | None


class TrialsDiff(msgspec.Struct, frozen=True):
    """``trials diff --json``. ``first_difference``: number of the first turn with different calls or results, or that
    only one of them has; None if there is none. ``same_prompt``: None where one has no turn."""

    run: str
    run_dir: str
    left: TrialHead
    right: TrialHead
    left_verifier: VerifierReport
    right_verifier: VerifierReport
    same_prompt: bool | None
    first_difference: int | None
    turns: tuple[TurnsShown, ...]
    schema: int = SCHEMA


def both(
    run: RunDir, state: Snapshot | None, live: bool, name: str, other: str | None
) -> tuple[TrialShown, TrialShown, TrialPair]:
    """Two trials, and their turns beside each other. ``other``: None for the best trial of the same prompt and step,
    or the worst one if ``name`` is the best; then the better one comes first.

    Raises:
        NoSuchTrial: there is no such trial, or no other one of its prompt that has a reward.
        OSError: the storage failed.
    """
    first = path_of(run, state, name)
    second = path_of(run, state, other) if other is not None else None
    read = {first: reader_of(run.path / first).read()}
    seen = {first: shown_of(run, state, live, first, read[first])}
    if second is None:
        first, second = _opposite(run, state, seen[first].trial)
    for path in {first, second} - read.keys():
        read[path] = reader_of(run.path / path).read()
        seen[path] = shown_of(run, state, live, path, read[path])
    return seen[first], seen[second], pair_of(read[first], read[second])


def diff_of(one: TrialShown, two: TrialShown, pair: TrialPair) -> TrialsDiff:
    """What ``both`` has found, as a document."""
    return TrialsDiff(
        one.run,
        one.run_dir,
        one.trial,
        two.trial,
        one.verifier,
        two.verifier,
        pair.same_prompt,
        pair.first,
        tuple(map(_turns, pair.turns)),
    )


def _opposite(run: RunDir, state: Snapshot | None, head: TrialHead) -> tuple[str, str]:
    newest = state.trials.newest if state is not None else ()
    heads = heads_of_step(run.path, head.step) if head.step is not None else list(newest)
    found = opposite(heads, head.path)
    if found is None:
        raise NoSuchTrial(
            f"no other trial of the prompt of {head.name} has a reward: name the trial to compare it with"
        )
    return found[0].path, found[1].path


def _turns(turns: TurnPair) -> TurnsShown:
    return TurnsShown(turns.number, turns.differs, _parts(turns.left), _parts(turns.right))


def _parts(turn: Turn | None) -> tuple[PartShown, ...] | None:
    if turn is None:
        return None
    return tuple(PartShown(part.kind, part.name, part.text) for part in (*turn.answer, *turn.after))
