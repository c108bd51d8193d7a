"""Names of columns and number of rows from a Parquet file's footer."""

from __future__ import annotations

import io
import shlex
import struct
from pathlib import Path

import pytest

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.preflight import verl
from liverl.util.parquet import parquet
from liverl.util.parquet_footer import Footer, read_footer

TWO = parquet({"prompt": ["a", None], "n": [1, 2]}, {"prompt": str, "n": int})
# By the specification, the schema of rows such as {"prompt": [{"role": ..., "content": ...}], "n": 1}:
# root(2) > prompt(1) > list(1) > element(2) > role, content; n.
NESTED = (
    b"\x15\x02\x19\x7c"
    b"\x48\x06schema\x15\x04\x00"
    b"\x48\x06prompt\x15\x02\x00"
    b"\x48\x04list\x15\x02\x00"
    b"\x48\x07element\x15\x04\x00"
    b"\x15\x0c\x38\x04role\x00"
    b"\x15\x0c\x38\x07content\x00"
    b"\x15\x04\x38\x01n\x00"
    b"\x16\x06\x19\x0c\x00"
)


def whole(footer: bytes) -> bytes:
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def test_what_is_written_is_read() -> None:
    assert read_footer(io.BytesIO(TWO)) == Footer(("prompt", "n"), 2)
    assert read_footer(io.BytesIO(whole(NESTED))) == Footer(("prompt", "n"), 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too short"),
        (b"PAR1PAR1", "too short"),
        (TWO[:-1], "does not end as"),
        (TWO[:-8] + struct.pack("<I", 1 << 31) + b"PAR1", "is said to have 2,147,483,648 bytes"),
        (whole(b"\xff" * 40), "damaged"),
        (whole(NESTED[:30]), "damaged"),
        (whole(b"\x00"), "damaged"),
        (whole(b"\x1c" * 200), "damaged"),
    ],
)
def test_a_file_that_is_none_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_footer(io.BytesIO(data))


def test_each_cut_of_a_footer_is_refused_or_read() -> None:
    told = read_footer(io.BytesIO(whole(NESTED)))
    for end in range(len(NESTED)):
        try:
            assert read_footer(io.BytesIO(whole(NESTED[:end]))) == told
        except ValueError:
            pass


@pytest.mark.parametrize(
    "footer",
    [
        bytes([0x29, 0x25, 2, 2, 0x16, 4, 0]),  # a schema of numbers
        bytes([0x28, 1, 65, 0x16, 4, 0]),  # a schema that is a text
        bytes([0x29, 0x1C, 0x48, 1, 114, 0x15, 0, 0, 0x18, 2, 65, 66, 0]),  # rows that are a text
        bytes([0x29, 0x1C, 0x48, 1, 114, 0x15, 0, 0, 0x16, 1, 0]),  # -1 rows
        bytes([0x29, 0x2C, 0x48, 1, 114, 0x15, 2, 0, 0x45, 2, 0, 0x16, 4, 0]),  # a name that is a number
    ],
)
def test_a_footer_of_other_types_is_damaged(footer: bytes) -> None:
    with pytest.raises(ValueError, match="its footer is damaged"):
        read_footer(io.BytesIO(whole(footer)))


def config(*sets: str) -> RunConfig:
    return load_config(profile="cpu-verl", sets=list(sets), env={}).config


def found(path: Path, *sets: str, key: str = "data.train_index") -> Check:
    given = config(f"data.train_index={path}", *sets)
    checks = {
        c.name: verl._validated(given, verl._unread(given, c, str(path))) for c in verl.data_files(given)
    }
    return checks[key]


def test_without_an_environment_a_file_is_there_and_not_good(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(TWO)
    check = found(path)
    assert (check.status, check.text) == ("skipped", f"{path}: is there, with 2 rows, none of which was read")
    path.write_bytes(parquet({"question": ["a"], "answer": ["b"]}, {"question": str, "answer": str}))
    check = found(path)
    assert check.status == "fail" and "docs/own-run.md#rows" in check.fix
    assert check.text == f"{path}: has no column prompt with the messages; it has question, answer"
    path.write_bytes(TWO[:-3])
    assert found(path).text.startswith(f"{path} cannot be read: it does not end as a Parquet file")


@pytest.mark.parametrize(("text", "words"), [(b'{"a": 1}\n', "t.jsonl "), (b"a,b\n", "docs/own-run.md#rows")])
def test_a_file_of_another_kind_says_how_to_convert_it(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(text)
    check = verl.parquet("data.train_index", str(path))
    assert check.status == "fail" and words in check.fix
    assert ("t.parquet" in check.fix) == (text[:1] == b"{")


def test_json_under_the_name_of_parquet_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b'{"a": 1}\n')
    words = shlex.split(verl.parquet("data.train_index", str(path)).fix)
    assert words[-2:] == [str(path), str(tmp_path / "t.converted.parquet")]


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (("training.test_freq=-1",), False),
        (("training.test_freq=2",), True),
        (("training.test_freq=-1", "training.val_before_train=true"), True),
        (("training.test_freq=-1", "trainer.overrides={trainer.test_freq: 3}"), True),
        (("training.test_freq=2", "trainer.overrides={trainer.test_freq: -1}"), False),
        (("training.test_freq=-1", "trainer.overrides={trainer.val_before_train: true}"), True),
    ],
)
def test_whether_verl_validates(sets: tuple[str, ...], expected: bool) -> None:
    assert verl.validates(config(*sets)) == expected


OFF = ("training.test_freq=-1", "training.val_before_train=false")
ON = ("training.test_freq=1",)


@pytest.mark.parametrize(
    ("sets", "own", "status", "words"),
    [
        (OFF, True, "skipped", f"none of which was read; {verl.NO_VALIDATION}"),
        (ON, True, "skipped", "none of which was read"),
        (OFF, False, "skipped", f"none of which was read); {verl.NO_VALIDATION}"),
        (ON, False, "warn", "a validation on rows that are trained on says little"),
    ],
)
def test_the_rows_of_a_validation_say_what_becomes_of_them(
    tmp_path: Path, sets: tuple[str, ...], own: bool, status: str, words: str
) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(TWO)
    given = (*sets, *([f"data.val_index={path}"] if own else []))
    check = found(path, *given, key="data.val_index")
    assert check.status == status and check.text.endswith(words)
    assert "smoke" not in check.text
    assert check.text.startswith("data.val_index is not set, so that verl gets the training rows") != own
