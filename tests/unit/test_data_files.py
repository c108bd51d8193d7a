"""Several data files, as ``trainer.overrides`` names them: which ones verl gets, and that each of them is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liverl.config import load_config, sizing
from liverl.config.loaded import LoadedConfig
from liverl.config.resolve import resolved
from liverl.model import Check
from liverl.plan.build import make_plan
from liverl.plan.ray import shared_paths
from liverl.plan.verl_overrides import overrides
from liverl.preflight import data_rows, verl
from liverl.preflight.data_rows import Answer, File, Scored
from liverl.preflight.own_lines import own_lines
from liverl.util.parquet import parquet

ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "What is 1 + 1?"}],
    "reward_model": {"ground_truth": "2"},
}
NEVER = ("training.test_freq=-1", "training.val_before_train=false")
HUNDRED = ("training.train_batch_size=100", "training.train_prompt_mini_batch_size=100")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has built."""
    monkeypatch.setattr(verl, "interpreter", lambda plan: None)


def loaded(folder: Path, *sets: str, **given: Any) -> LoadedConfig:
    """``given``: ``train`` and ``val``, as the overrides have them."""
    words = "".join(f"\n  - data.{name}_files={value}" for name, value in given.items())
    file = folder / "config.yaml"
    file.write_text(f"trainer:\n  overrides:{words or ' {}'}\n")
    sets = ("training.train_batch_size=8", *sets)
    found = load_config(file, profile="cpu-verl", sets=list(sets), env={})
    fixed = resolved(
        found.config, env={"HOME": "/h", "LIVERL_CACHE_DIR": "/c"}, cwd=folder, now=0.0, file=file
    )
    return replace(found, config=fixed)


def written(folder: Path, *names: str) -> Iterator[str]:
    for name in names:
        (folder / name).write_bytes(parquet({"prompt": ["a"]}, {"prompt": str}))
        yield str(folder / name)


def checks(found: LoadedConfig) -> dict[str, Check]:
    """Those of the data."""
    return {check.name: check for check in verl.data(make_plan(found, Path("/r/run")), found.config)}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a.parquet", ("a.parquet",)),
        ("'a b.parquet'", ("a b.parquet",)),
        ("['a.parquet','b.parquet']", ("a.parquet", "b.parquet")),
        ('[ "a,1.parquet" , b c.parquet, ]', ("a,1.parquet", "b c.parquet")),
        (["a", "b"], ("a", "b")),
        ("a,b", None),  # Hydra's sweep
        ("[${data.val_files}]", None),
        ("[a,[b]]", None),
        ("{a: b}", None),
        ("['a\\'b']", None),
        ("[]", None),
        ([1], None),
    ],
)
def test_files_of_an_override(value: Any, expected: tuple[str, ...] | None) -> None:
    assert sizing.files_of(value) == expected


def test_verl_gets_each_file_with_its_whole_path(tmp_path: Path) -> None:
    found = loaded(tmp_path, train="['a.parquet','~/b.parquet','/x/c.parquet','s3://d/e']", val="v.parquet")
    said = overrides(found.config)
    assert f"data.train_files=[{tmp_path}/a.parquet,/h/b.parquet,/x/c.parquet,'s3://d/e']" in said
    assert f"data.val_files=[{tmp_path}/v.parquet]" in said
    again = resolved(found.config, env={"HOME": "/h"}, cwd=Path("/other"), now=1.0)
    assert again.trainer.overrides == found.config.trainer.overrides
    assert shared_paths(found.config).items() >= {
        "data.train_files[0]": f"{tmp_path}/a.parquet",
        "data.train_files[1]": "/h/b.parquet",
        "data.train_files[2]": "/x/c.parquet",
        "data.val_files": f"{tmp_path}/v.parquet",
    }.items()  # fmt: skip


def test_what_only_hydra_reads_stays_as_it_is(tmp_path: Path) -> None:
    found = loaded(tmp_path, train="${data.val_files}", val="/v.parquet")
    assert "data.train_files=${data.val_files}" in overrides(found.config)
    assert "data.val_files=/v.parquet" in overrides(found.config)
    told = checks(found)["data.train_files"]
    assert told.status == "skipped" and "no file was looked at" in told.text


def test_without_files_to_validate_verl_gets_those_that_are_trained(tmp_path: Path) -> None:
    several = loaded(tmp_path, train="['/a','/b']")
    assert "data.val_files=[/a,/b]" in overrides(several.config)
    one = loaded(tmp_path, train="/a")
    assert "data.val_files=/a" in overrides(one.config)


def test_each_file_is_looked_at_and_no_key_is_asked_for(tmp_path: Path) -> None:
    good, bad = [*written(tmp_path, "a.parquet"), str(tmp_path / "b.parquet")]
    found = checks(loaded(tmp_path, *NEVER, train=f"['{good}','{bad}']", val=good))
    assert found["data.train_files[0]"].text == f"{good}: is there, with 1 row, none of which was read"
    assert found["data.train_files[1]"].status == "fail" and bad in found["data.train_files[1]"].text
    assert found["data.train_files[1]"].patch == {}  # no key of ours would mend it
    assert found["data.val_files"].text.endswith(verl.NO_VALIDATION)
    assert not {"data", "data.train_index", "data.val_index"} & found.keys()


def test_a_file_that_verl_does_not_get_is_not_called_good(tmp_path: Path) -> None:
    (good,) = written(tmp_path, "good.parquet")
    found = checks(
        loaded(tmp_path, f"data.train_index={good}", f"data.val_index={good}", train="/gone", val="/gone")
    )
    assert {name: found[name].status for name in ("data.train_files", "data.val_files")} == {
        "data.train_files": "fail",
        "data.val_files": "fail",
    }
    assert not any(good in check.text for check in found.values())


def test_several_files_that_are_trained_are_not_validated_on_in_silence(tmp_path: Path) -> None:
    files = ",".join(written(tmp_path, "a.parquet", "b.parquet"))
    told = checks(loaded(tmp_path, "training.val_before_train=true", train=f"[{files}]"))["data.val_index"]
    assert told.status == "warn" and "gets the training rows in its place" in told.text
    told = checks(loaded(tmp_path, *NEVER, train=f"[{files}]"))["data.val_index"]
    assert told.status == "skipped" and told.text.endswith(verl.NO_VALIDATION)


def test_the_rows_of_all_files_make_a_batch(tmp_path: Path) -> None:
    config = loaded(tmp_path, *HUNDRED, train="['/a','/b']", val="/v").config
    names = {"data.train_files[0]": "/a", "data.train_files[1]": "/b", "data.val_files": "/v"}

    def told(*counts: int) -> dict[str, Check]:
        files = {
            key: File(count=count, columns=tuple(ROW), rows={0: ROW})
            for key, count in zip(names, counts, strict=True)
        }
        answer = Answer(files=files, scored=Scored(exact=("openai/gsm8k",)))
        return {check.name: check for check in data_rows.checks(config, answer, names)}

    assert {check.status for check in told(60, 40, 1).values()} == {"ok"}
    few = told(60, 39, 1)["data.train_files[0]"]
    assert few.status == "fail" and few.text.startswith(
        "2 files of data.train_files together: has 99 rows, and training.train_batch_size is 100"
    )
    assert told(60, 39, 1)["data.train_files[1]"].text == "/b: 39 rows: chat 39"
    del names["data.train_files[1]"]  # it cannot be read: how many rows there are is not known
    assert {check.status for check in told(60, 1).values()} == {"ok"}


def test_a_start_says_what_is_trained_of_each_file(tmp_path: Path) -> None:
    config = loaded(tmp_path, "training.val_before_train=true", train="['/a','/b']", val="['/v','/w']").config
    rows = [Check(f"data.train_files[{n}]", "ok", f"/{name}: 5 rows") for n, name in enumerate("ab")]
    lines = list(own_lines(config, rows))
    assert lines[:2] == ["rows       /a: 5 rows", "rows       /b: 5 rows"]
    assert any(line.startswith("validates") and line.endswith("on /v, /w") for line in lines)
