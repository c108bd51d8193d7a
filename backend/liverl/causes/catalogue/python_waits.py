"""Signatures of time-outs, and of YAML, Arrow or JSON that cannot be read or written."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="timed-out",
        component="python",
        role="general",
        where="exception",
        pattern=r"^(?:[\w.]{1,60}\.)?TimeoutError(?:: (?P<why>[^\n]{1,200}))?$",
        needle="TimeoutError",
        title="A program waited too long for an answer",
        cause=(
            "What it waited for did not come within its time limit: a server or environment that "
            "is overloaded, hangs or has ended, or a limit that is too short."
        ),
        fix=(
            "Look at the line for what it waits for and into that program's log at the same time; "
            "then raise the limit or lower the number of requests at a time."
        ),
        effect=True,
        source="CPython",
        fires="asyncio.exceptions.TimeoutError",
        spares="INFO a TimeoutError is handled",
    ),
    Signature(
        id="yaml-invalid",
        component="python",
        role="general",
        pattern=(r"yaml\.(?:scanner|parser|constructor|composer|reader)\.\w{4,30}: (?P<why>[^\n]{1,160})"),
        needle="yaml.",
        title="A YAML file cannot be read: {why}",
        cause=(
            "The file is no valid YAML: indentation, a tab, a missing quote, or a colon in a text. "
            "The lines below name the place."
        ),
        fix="Correct the file at the line and column that the message names.",
        effect=True,
        source="PyYAML",
        fires="yaml.scanner.ScannerError: mapping values are not allowed here",
        spares="INFO yaml.scanner: reader is ready",
    ),
    Signature(
        id="arrow-invalid",
        component="python",
        role="general",
        where="exception",
        pattern=r"ArrowInvalid: (?P<why>(?!Parquet )[^\n]{1,200})",
        needle="ArrowInvalid: ",
        title="Arrow cannot read or convert data",
        cause=(
            "Arrow says: {why}. A data file, or the rows that a program writes, hold values of "
            "different types in one column, or are no such file."
        ),
        fix=(
            "Look at the column that the message names; write each column with one type (numbers "
            "as numbers, dicts as JSON text)."
        ),
        effect=True,
        source="pyarrow",
        fires=("pyarrow.lib.ArrowInvalid: Could not convert 'a' with type str: tried to convert to int64"),
        spares="pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer",
    ),
    Signature(
        id="json-nan",
        component="python",
        role="general",
        where="exception",
        pattern=(r"^ValueError: Out of range float values are not JSON compliant(?:: (?P<value>\S{1,20}))?"),
        needle="Out of range float values are not JSON compliant",
        title="A number that is NaN or infinite cannot be written as JSON",
        cause=(
            "A result holds NaN or an infinite number: log-probabilities or rewards of a model "
            "whose weights are broken, or a division by zero."
        ),
        fix=(
            "Find out which number it is; for log-probabilities check the weights (another dtype, "
            "no quantization), else replace it before it is sent."
        ),
        effect=True,
        source="CPython",
        fires="ValueError: Out of range float values are not JSON compliant: nan",
        spares="INFO float values are not JSON compliant here",
    ),
    Signature(
        id="numpy-pickle",
        component="python",
        role="general",
        where="exception",
        pattern=r"^ValueError: Cannot load file containing pickled data when allow_pickle=False",
        needle="Cannot load file containing pickled data when allow_pickle=False",
        title="A file of numpy holds no plain array",
        cause=(
            "It holds Python objects, or it is no .npy file at all: cut, compressed, or a Git LFS pointer."
        ),
        fix="Look at the size of the file; load it with allow_pickle=True only if you trust it.",
        effect=True,
        source="numpy/lib",
        fires="ValueError: Cannot load file containing pickled data when allow_pickle=False",
        spares="INFO file containing pickled data",
    ),
    Signature(
        id="command-failed",
        component="python",
        role="consequence",
        where="exception",
        pattern=(
            r"^(?:subprocess\.)?CalledProcessError: Command '?(?P<command>[^\n]{1,300}?)'? returned "
            r"non-zero exit status (?P<code>\d{1,3})"
        ),
        needle="CalledProcessError: Command ",
        title="A command that a program ran failed with exit code {code}",
        fix=(
            "Read its own output, above or in another file; run that command by hand in the same "
            "directory and environment, and read what it prints."
        ),
        source="CPython",
        fires=(
            "subprocess.CalledProcessError: Command '['git', 'clone', 'https://x/y']' returned "
            "non-zero exit status 128."
        ),
        spares="CalledProcessError: Command died with signal 9",
    ),
    Signature(
        id="fields-refused",
        component="python",
        role="general",
        where="exception",
        pattern=(
            r"\d{1,3} validation errors? for (?P<model>\w{1,60})\n(?P<field>[\w.]{1,100})\n "
            r"{1,4}(?P<why>Field required|Input should be [^\n\[]{1,80}|Extra inputs are not "
            r"permitted)"
        ),
        needle=" validation error",
        title="{model} refuses its field {field}",
        cause=(
            "The object {model} was made with a field that is missing, unknown or of another type: {why}."
        ),
        fix=(
            "Look at the line that makes it, and give the field as it says; its fields differ "
            "between versions."
        ),
        effect=True,
        source="pydantic",
        fires=(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
            "AgentLoopOutput\nresponse_mask\n  Field required [type=missing]"
        ),
        spares="1 validation error for ModelConfig\n  Value error, field",
    ),
    Signature(
        id="config-value-kind",
        component="python",
        role="general",
        pattern=(r"UnsupportedValueType: Value '(?P<type>[\w.]{1,60})' is not a supported primitive type"),
        needle="UnsupportedValueType: Value '",
        title="A configuration cannot hold a {type}",
        cause=(
            "The program puts a value of type {type} into an OmegaConf configuration, which holds "
            "only numbers, texts, lists and dicts of them."
        ),
        fix="Convert it first (.tolist(), float(), str()), or pass it beside the configuration.",
        effect=True,
        source="omegaconf",
        fires=("omegaconf.errors.UnsupportedValueType: Value 'ndarray' is not a supported primitive type"),
        spares="INFO UnsupportedValueType is handled",
    ),
)
