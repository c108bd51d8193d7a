"""Signatures of names that a batch, a table of data or a missing value does not have."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="batch-field",
        component="python",
        role="cause",
        where="exception",
        pattern=(
            r"^KeyError: 'key \\?\"(?P<name>[\w.-]{1,80})\\?\" not found in TensorDict with keys "
            r"(?P<has>\[[^\n]{1,300})"
        ),
        needle="not found in TensorDict with keys ",
        title="The batch has no field {name}",
        cause=(
            "A step of the training reads {name}, and the batch has only {has}: the step that "
            "computes it is not switched on or came later, or the rollout (or another version of "
            "it) does not return it."
        ),
        fix=(
            "Compare the options that compute {name} (a critic, a reference, rollout "
            "log-probabilities, masks of an agent loop) with what reads it; for a fork of verl "
            "make sure that its own verl is imported."
        ),
        source="tensordict/base.py",
        fires=(
            'KeyError: \'key "tool_output_masks" not found in TensorDict with keys '
            "[\\'input_ids\\', \\'responses\\']'"
        ),
        spares="KeyError: 'key \"x\" is not found in the tensordict'",
    ),
    Signature(
        id="data-columns",
        component="python",
        role="cause",
        where="exception",
        pattern=(
            r"^KeyError: [\"'](?:None of \[Index\(|\[)(?P<names>[^\n]{1,120}?)\](?:, "
            r"dtype='\w{1,20}'\)\])? (?:are (?:in the \[columns\]|not in index)|not in index)"
        ),
        needle="KeyError: ",
        title="The data has no column {names}",
        cause="A program selects {names} of a table, and it has no such column.",
        fix=("Print the columns of the file, and correct the name in the configuration or write the column."),
        source="pandas/core/indexes/base.py",
        fires="KeyError: \"None of [Index(['prompt'], dtype='object')] are in the [columns]\"",
        spares="KeyError: 'columns'",
    ),
    Signature(
        id="none-attribute",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^AttributeError: 'NoneType' object has no attribute "
            r"'(?!c(?:de)?quantize_)(?P<name>\w{1,120})'"
        ),
        needle="'NoneType' object has no attribute '",
        title="A value that is missing (None) is used (its {name} is wanted)",
        cause=(
            "Something that should be an object is None: an option that is not set, an empty field "
            "of the data (extra_info, a message without content), or something that could not be "
            "loaded or found before."
        ),
        fix=(
            "Look at the line for which value it is, and set it, or find out above in the log why "
            "it was not made."
        ),
        effect=True,
        source="CPython",
        fires="AttributeError: 'NoneType' object has no attribute 'sleep'",
        spares="AttributeError: 'NoneType' object has no attribute 'cdequantize_blockwise_fp32'",
    ),
    Signature(
        id="module-of-version",
        component="python",
        role="cause",
        pattern=(
            r"No module named '(?P<package>vllm|sglang|verl|transformers|megatron|trl|ray|torch|peft|a"
            r"ccelerate|datasets|tensordict)\.(?P<part>[\w.]{1,100})'"
        ),
        needle="No module named '",
        title="The installed {package} has no module {package}.{part}",
        cause=(
            "A program imports it from {package}, and the installed version does not have it: its "
            "files are in another place in other versions, or a file of yours named {package} "
            "hides the package."
        ),
        fix=(
            "Install the version of {package} that the importing program was written for "
            "(environments), or the other way round."
        ),
        source="CPython",
        fires="ModuleNotFoundError: No module named 'vllm.entrypoints.openai.engine'",
        spares="ModuleNotFoundError: No module named 'vllm'",
    ),
)
