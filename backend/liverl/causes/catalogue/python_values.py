"""Signatures of errors of Python about values that are missing, empty, or cannot be converted."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="list-short",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^IndexError: (?P<what>list|tuple|string|deque|pop|list assignment|range object)(?: from "
            r"(?:an )?empty \w{1,20}| index)(?: out of range)?"
        ),
        needle="IndexError: ",
        title="A {what} has fewer entries than a program expects",
        cause=(
            "The program takes an entry by its number, and there are fewer, often none at all: "
            "nothing matched, or the text, list or reply is empty."
        ),
        fix=(
            "Handle the case of no entry at that line; if it lies in a package, look for what is "
            "empty in the data or the configuration."
        ),
        effect=True,
        source="CPython",
        fires="IndexError: list index out of range",
        spares="IndexError: index 5 is out of bounds for dimension 0 with size 5",
    ),
    Signature(
        id="unpack-few",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^ValueError: not enough values to unpack \(expected (?:at least )?(?P<wanted>\d{1,6}), "
            r"got (?P<has>\d{1,9})\)"
        ),
        needle="ValueError: not enough values to unpack",
        title="A program expects {wanted} values and gets {has}",
        cause=(
            "A function returned, or a row or shape has, fewer values than the program takes "
            "apart: it was written for another version or another kind of data."
        ),
        fix=(
            "Return as many values as the caller takes; within a package install versions that "
            "belong together (environments)."
        ),
        effect=True,
        source="CPython",
        fires="ValueError: not enough values to unpack (expected 2, got 1)",
        spares="INFO not enough values to unpack",
    ),
    Signature(
        id="unpack-many",
        of_versions=True,
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^ValueError: too many values to unpack \(expected (?P<wanted>\d{1,6})(?:, got "
            r"\d{1,9})?\)"
        ),
        needle="ValueError: too many values to unpack",
        title="A program expects {wanted} values and gets more",
        cause=(
            "A function returned, or a row or shape has, more values than the program takes apart: "
            "it was written for another version or another kind of data."
        ),
        fix=(
            "Return as many values as the caller takes; within a package install versions that "
            "belong together (environments)."
        ),
        effect=True,
        source="CPython",
        fires="ValueError: too many values to unpack (expected 2)",
        spares="INFO too many values to unpack",
    ),
    Signature(
        id="not-a-number",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^ValueError: (?:could not convert string to (?:float|int|complex)|invalid literal for "
            r"int\(\) with base \d{1,2}): (?P<text>[^\n]{1,120})"
        ),
        needle="ValueError: ",
        title="A text is no number (invalid literal): {text}",
        cause=(
            "A program converts {text} to a number. It is text of the model or of the data with "
            "other characters, or an option that must be a number."
        ),
        fix=(
            "Take the number out of the text before it is converted, and count a sample without "
            "one as wrong; or correct the option."
        ),
        effect=True,
        source="CPython",
        fires="ValueError: could not convert string to float: '1,234'",
        spares="ValueError: could not convert the file",
    ),
    Signature(
        id="number-of-none",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?P<function>float|int)\(\) argument must be a string[^\n]{0,60}, not "
            r"'?(?P<type>\w{1,60})'?"
        ),
        needle="() argument must be a string",
        title="A value of type {type} should be a number",
        cause=(
            "The program converts it with {function}(): an option that is not set, or a function "
            "that returned nothing or something else."
        ),
        fix="Look at the line for which value it is, and set it or return a number.",
        effect=True,
        source="CPython",
        fires="TypeError: float() argument must be a string or a real number, not 'NoneType'",
        spares="INFO float() argument must be a string",
    ),
    Signature(
        id="path-none",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^TypeError: (?:expected str, bytes or os\.PathLike "
            r"object|(?:stat|lstat|scandir|listdir): path should be[^\n]{0,60}|join\(\) argument must "
            r"be str[^\n]{0,60}), not '?NoneType'?"
        ),
        needle="TypeError: ",
        title="A path is not set (None)",
        cause=(
            "A program opens a path that is None: an option for a folder or file that is not set, "
            "or a model that was not found."
        ),
        fix="Set the option for that path; the line of code names it.",
        effect=True,
        source="CPython",
        fires="TypeError: expected str, bytes or os.PathLike object, not NoneType",
        spares="TypeError: expected str, bytes or os.PathLike object, not DictConfig",
    ),
    Signature(
        id="no-json",
        component="python",
        role="general",
        where="exception",
        pattern=r"^TypeError: Object of type (?P<type>[\w.]{1,60}) is not JSON serializable",
        needle="TypeError: Object of type ",
        title="A value of type {type} cannot be written as JSON",
        cause=(
            "A program writes a value of type {type} as JSON: data read from Parquet holds arrays "
            "of numpy, and metrics hold tensors or numbers of numpy."
        ),
        fix=(
            "Convert it first: .tolist() for arrays and tensors, .item() or float() for single "
            "numbers, str() for others."
        ),
        effect=True,
        source="CPython",
        fires="TypeError: Object of type ndarray is not JSON serializable",
        spares="INFO Object of type ndarray is JSON serializable",
    ),
    Signature(
        id="array-ragged",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^ValueError: setting an array element with a sequence\.(?: The requested array has an "
            r"inhomogeneous shape after (?P<count>\d{1,3}) dimensions?)?"
        ),
        needle="ValueError: setting an array element with a sequence",
        title="Rows of different lengths or kinds cannot become one array of numpy",
        cause=(
            "The values of the samples do not all have the same shape: some are lists, numbers or "
            "missing where others are not."
        ),
        fix=(
            "Give every sample the same keys and kinds of values (a reward must return the same "
            "keys each time), or build the array with dtype=object."
        ),
        effect=True,
        source="CPython",
        fires=(
            "ValueError: setting an array element with a sequence. The requested array has an "
            "inhomogeneous shape after 1 dimensions. The detected shape was (8,) + inhomogeneous "
            "part."
        ),
        spares="INFO setting an array element with a sequence",
    ),
    Signature(
        id="zero-division",
        component="python",
        role="general",
        where="exception",
        pattern=r"^ZeroDivisionError: (?P<what>[^\n]{1,80})",
        needle="ZeroDivisionError: ",
        title="A program divides by zero",
        cause=(
            "Python says: {what}. What is counted there is empty: no samples, no tokens, no steps, "
            "or a size that an option rounds down to 0."
        ),
        fix=(
            "Look at the line for which number is 0: more data or a smaller batch size for counts "
            "of batches; in code of yours handle the empty case."
        ),
        effect=True,
        source="CPython",
        fires="ZeroDivisionError: division by zero",
        spares="ZeroDivisionError is handled",
    ),
    Signature(
        id="path-absent",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"^(?:Value|Assertion|OS)Error: (?:[\w ]{0,40}(?:path|file|directory|folder|checkpoint))[ "
            r":]{1,2}(?P<path>[\w.~-]{0,60}/[\w./~-]{1,300}) (?:does not exist|not found|is not a "
            r"directory|must be an existing directory|must exist)"
        ),
        needle="Error: ",
        title="{path} does not exist, or is no folder",
        cause=("A program was given the path {path}, which does not exist on the host that it runs on."),
        fix=(
            "Correct the path, or make it available on all nodes; relative paths start at the "
            "directory of that process."
        ),
        effect=True,
        source="CPython",
        fires="ValueError: directory /tmp/local.zip must be an existing directory",
        spares="Error: /data must be an existing directory",
    ),
)
