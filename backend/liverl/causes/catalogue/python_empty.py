"""Signatures of computations with nothing: empty lists, arrays, tensors and iterators."""

from __future__ import annotations

from liverl.causes.catalogue.family import Text, family
from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    *family(
        Signature(
            id="empty-list",
            component="python",
            role="general",
            where="exception",
            pattern=(r"^ValueError: (?:max|min)\(\) (?:arg is an empty sequence|iterable argument is empty)"),
            needle="ValueError: ",
            title="A program takes the largest or smallest of nothing",
            cause=(
                "A list, array or tensor that the program reduces or joins has no entries: every "
                "sample was filtered out, no reply or no score came, or a mask selects nothing."
            ),
            fix=(
                "Look at the line for what is empty, and find out where its samples went: filters of "
                "the data, failed trials, masks without a token."
            ),
            effect=True,
            source="CPython",
            fires="ValueError: max() arg is an empty sequence",
            spares="ValueError: empty",
        ),
        Text(
            id="empty-array",
            pattern=(
                r"^ValueError: (?:zero-size array to reduction operation \w{1,20}|need at least one "
                r"array) (?:which has no identity|to (?:concatenate|stack))"
            ),
            needle="ValueError: ",
            title="A program computes with an array that is empty",
            fires="ValueError: need at least one array to concatenate",
            spares="ValueError: one array is enough",
        ),
        Text(
            id="empty-tensor",
            pattern=(
                r"^(?:Runtime|Index)Error: (?:stack expects a non-empty TensorList|torch\.cat\(\): "
                r"expected a non-empty list of Tensors|\w{1,20}\(\): Expected reduction dim to be "
                r"specified for input\.numel\(\) == 0|cannot reshape tensor of 0 elements)"
            ),
            needle="Error: ",
            title="A program computes with a tensor that is empty",
            fires="RuntimeError: stack expects a non-empty TensorList",
            spares="Error: a tensor is empty",
        ),
    ),
    Signature(
        id="iterator-empty",
        component="python",
        role="general",
        where="exception",
        pattern=r"^(?:RuntimeError: (?:generator|coroutine) raised )?StopIteration$",
        needle="StopIteration",
        title="A program takes the next item of an iterator that has none left",
        cause=(
            "An iterator ended earlier than the program expects: a data loader with no (further) "
            "batch, a search that found nothing, or a model without parameters."
        ),
        fix=(
            "Give next() a default or start the iterator again; for data check that there are "
            "enough samples for one batch."
        ),
        effect=True,
        source="CPython",
        fires="RuntimeError: generator raised StopIteration",
        spares="INFO the StopIteration of a generator is handled",
    ),
)
