"""Signatures of data sets: their files, their rows, the messages in them."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="parquet-damaged",
        component="python",
        role="cause",
        pattern=r"Parquet (?:magic bytes not found in footer|file size is \d{1,12} bytes)",
        needle="Parquet ",
        title="A data file is no whole Parquet file",
        cause=(
            "Its end is missing, or it is another kind of file: a download or copy that was cut, a Git LFS "
            "pointer, or a JSON file with the wrong ending."
        ),
        fix=("Copy or download it again (git lfs pull), and look with ls -l whether its size is right."),
        command="ls -l; head -c 200 train.parquet",
        source="Apache Arrow cpp/src/parquet/file_reader.cc",
        fires=(
            "pyarrow.lib.ArrowInvalid: Could not open Parquet input source '<Buffer>': Parquet magic bytes "
            "not found in footer. Either the file is corrupted or this is not a parquet file."
        ),
        spares="INFO Parquet footer found, magic bytes right",
    ),
    Signature(
        id="arrow-nested",
        component="python",
        role="cause",
        pattern="Nested data conversions not implemented for chunked array outputs",
        needle="Nested data conversions not implemented for chunked array outputs",
        title="A column of the data is too large for this reader (nested, over 2 GiB)",
        cause=(
            "Arrow cannot read a nested column of a row group that holds more than 2 GiB, such as messages "
            "with images."
        ),
        fix=("Write the file again with small row groups (row_group_size=1000) or as several files."),
        source="Apache Arrow",
        fires=(
            "pyarrow.lib.ArrowNotImplementedError: Nested data conversions not implemented for chunked array "
            "outputs"
        ),
        spares="INFO Nested data conversions implemented",
    ),
    Signature(
        id="arrow-version",
        component="python",
        role="cause",
        pattern="Repetition level histogram size mismatch",
        needle="Repetition level histogram size mismatch",
        title="This pyarrow cannot read the Parquet file: it was written by a newer one",
        cause=(
            "The statistics in the file were written by another version of pyarrow than the one that reads "
            "it."
        ),
        fix=("Install a newer pyarrow (at least 19), or write the data again with the one that reads it."),
        command="python3 -c 'import pyarrow; print(pyarrow.__version__)'",
        source="Apache Arrow",
        fires="OSError: Repetition level histogram size mismatch",
        spares="INFO level histogram size: 3",
    ),
    Signature(
        id="datasets-cast",
        component="python",
        role="cause",
        pattern=r"Couldn't cast(?: array of type)?\s(?P<what>[^\n]{1,120})",
        needle="Couldn't cast",
        title="The rows of the data do not have the same columns or types",
        cause="datasets wants one form for all rows and files, and could not turn {what} into it.",
        fix=(
            "Write all files with the same columns and types (a column that is sometimes a text and "
            "sometimes a list is usual), or load them one by one."
        ),
        source="datasets table.py",
        fires="TypeError: Couldn't cast array of type struct<answer: string> to string",
        spares="INFO cast array of type string",
    ),
    Signature(
        id="chat-roles",
        component="python",
        role="cause",
        pattern=r"onversation roles must alternate (?P<roles>[\w/ ]{1,80})",
        needle="onversation roles must alternate ",
        title="The model's chat template wants alternating roles",
        cause=(
            "It wants {roles}; a conversation of the data or the agent has two messages of one role in a "
            "row, or a system message, which this template refuses."
        ),
        fix=(
            "Join such messages, or put the system text into the first user message; or use a model whose "
            "template allows it."
        ),
        source="chat templates of Mistral, Gemma and Llama 2",
        fires=(
            "jinja2.exceptions.TemplateError: Conversation roles must alternate "
            "user/assistant/user/assistant/..."
        ),
        spares="INFO Conversation roles alternate",
    ),
    Signature(
        id="chat-not-messages",
        component="python",
        role="cause",
        pattern=(r"UndefinedError: '(?P<type>str|dict|list) object' has no attribute '(?P<name>\w{1,60})'"),
        needle="UndefinedError: '",
        title="The chat template got something else than messages (no {name})",
        cause=(
            "The prompt column holds a {type} where the template wants a list of messages with role and "
            "content."
        ),
        fix=(
            "Write the prompt as a list of messages, each with role and content, when the data is prepared."
        ),
        source="jinja2 runtime.py",
        fires="jinja2.exceptions.UndefinedError: 'str object' has no attribute 'role'",
        spares="AttributeError: 'str' object has no attribute 'role'",
    ),
    Signature(
        id="vlm-image-tokens",
        component="verl",
        role="cause",
        pattern="Image features and image tokens do not match",
        needle="Image features and image tokens do not match",
        title="The pictures of a sample do not fit its image tokens",
        cause=(
            "The prompt was cut in the middle of a picture, or was tokenized with other picture sizes than "
            "the model gets."
        ),
        fix=(
            "Raise training.max_prompt_length so that no prompt with pictures is cut (filter long ones), and "
            "limit the pictures' pixels."
        ),
        source="transformers modeling of Qwen2-VL and others",
        fires=("ValueError: Image features and image tokens do not match: tokens: 1200, features 1296"),
        spares="INFO Image features and image tokens match",
    ),
    Signature(
        id="math-verify-thread",
        component="python",
        role="cause",
        pattern="signal only works in main thread of the main interpreter",
        needle="signal only works in main thread",
        title="A reward function uses signals outside of the main thread",
        cause=(
            "It sets a time-out by signal (math_verify and others do), which Python allows in the main "
            "thread only, and verl calls it in another one."
        ),
        fix=(
            "Switch its own time-out off (parsing_timeout=None, timeout_seconds=None for math_verify), and "
            "limit it from outside, for example in a process pool."
        ),
        source="CPython Modules/signalmodule.c",
        fires="ValueError: signal only works in main thread of the main interpreter",
        spares="INFO signal set in main thread",
    ),
    Signature(
        id="data-no-samples",
        component="torch",
        role="cause",
        pattern="num_samples should be a positive integer value, but got num_samples=0",
        needle="but got num_samples=0",
        title="The data set is empty",
        cause=(
            "A data loader got a data set without a single row: a wrong path, an empty file, or a filter "
            "that removed all rows."
        ),
        fix=(
            "Look how many rows the file has and how many the filter for long prompts leaves "
            "(training.max_prompt_length)."
        ),
        source="torch/utils/data/sampler.py",
        fires="ValueError: num_samples should be a positive integer value, but got num_samples=0",
        spares="INFO num_samples should be a positive integer value: num_samples=7",
    ),
)
