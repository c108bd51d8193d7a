"""Every row of a data set is looked at, not only the first ones: what is wrong, of which rows, and of how many."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.plan import make_plan
from liverl.preflight import data_rows, verl
from liverl.preflight.data_rows import Alike, Answer, File, Scored
from liverl.preflight.rows_program import AS_TEXT, NO_MESSAGES, NO_TEXT, look
from liverl.util.parquet import parquet

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
needs_parquet = pytest.mark.skipif(
    not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1"
)
KEY = "data.train_index"
SMALL = ("training.train_batch_size=1", "training.train_prompt_mini_batch_size=1")
ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 0, "split": "train"},
}
SCORED = Scored(exact=("openai/gsm8k",))
COUNT = 3000  # rows of a file, in several batches and groups
AT = (1500, 1501, 2999)  # the rows with a fault


def config(*sets: str) -> RunConfig:
    return load_config(profile="cpu-verl", sets=[*SMALL, *sets], env={}).config


def judged(answer: Answer, *sets: str) -> Check:
    (check,) = data_rows.checks(config(*sets), answer, {KEY: "/d/t.parquet"})
    return check


# --- the program, with real files -------------------------------------------------------------------------------------


def written(path: Path, rows: list[dict[str, Any]], schema: str = "None") -> Path:
    """A parquet file, made by verl's Python. ``schema``: an expression of pyarrow's."""
    source = path.with_suffix(".json")
    source.write_text(json.dumps(rows))
    program = (
        f"import json, pyarrow as pa, pyarrow.parquet as pq\nrows = json.load(open({str(source)!r}))\n"
        f"schema = {schema}\n"
        f"pq.write_table(pa.Table.from_pylist(rows, schema=schema), {str(path)!r}, row_group_size=1000)"
    )
    subprocess.run([PYTHON, "-c", program], check=True)
    return path


def read(path: Path, *sets: str) -> Answer:
    return data_rows.ask(Path(PYTHON), {KEY: str(path)}, (), (), data_rows.prompts_of(config(*sets)))


def rows_with(change: Callable[[dict[str, Any]], None], at: tuple[int, ...] = AT) -> list[dict[str, Any]]:
    rows = [copy.deepcopy(ROW) for _ in range(COUNT)]
    for number in at:
        change(rows[number])
    return rows


def put(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda row: row.__setitem__(name, value)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


# What is put into some rows behind the first half -> what is said of them.
FAULTS = {
    "no source": (put("data_source", None), "has no data_source"),
    "no reward model": (put("reward_model", None), "has no reward_model.ground_truth"),
    "no ground truth": (put("reward_model", {"style": "rule", "ground_truth": None}), "has no reward_model.gro"),
    "no prompt": (put("prompt", None), "prompt is NoneType 'None'; expected a list of messages"),
    "empty prompt": (put("prompt", []), "prompt is list '[]'; expected a list of messages"),
    "no text": (put("prompt", user("")), "no message of prompt has a text"),
    "no content": (put("prompt", user(None)), "no message of prompt has a text"),
    "no role": (put("prompt", [{"role": None, "content": "x"}]), "prompt is list"),
    "another source": (put("data_source", "my/own"), "verl has no reward function for data_source 'my/own'"),
    "a picture": (put("images", [{"bytes": "x", "path": None}]), "column images has pictures, videos or sounds"),
    "a video": (put("videos", ["a.mp4"]), "column videos has pictures, videos or sounds"),
    "a sound": (put("audios", ["a.wav"]), "column audios has pictures, videos or sounds"),
}  # fmt: skip


@needs_parquet
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_of_a_late_row_is_told_with_its_number_and_how_many_have_it(
    tmp_path: Path, kind: str
) -> None:
    change, words = FAULTS[kind]
    rows = rows_with(change)
    for name in rows[AT[0]].keys() - ROW.keys():
        for row in rows:
            row.setdefault(name, None)
    check = judged(read(written(tmp_path / "t.parquet", rows)))
    assert check.status == "fail"
    assert check.text.startswith(f"/d/t.parquet: row {AT[0]}: {words}"), check.text
    assert check.text.endswith("; 3 of 3,000 rows"), check.text


@needs_parquet
def test_a_fault_of_one_row(tmp_path: Path) -> None:
    check = judged(read(written(tmp_path / "t.parquet", rows_with(put("data_source", None), (1234,)))))
    assert check.text.startswith("/d/t.parquet: row 1234: has no data_source") and "3,000" not in check.text


@needs_parquet
def test_an_agent_loop_of_a_late_row(tmp_path: Path) -> None:
    for loop, words in (("liverl_tool", "; did you mean liverl_tools?"), (None, "")):
        rows = rows_with(put("agent_name", loop))
        for row in rows:
            row.setdefault("agent_name", "liverl_chat")
        check = judged(read(written(tmp_path / "t.parquet", rows)))
        named = f"/d/t.parquet: column agent_name has '{loop or 'null'}', which is no agent loop{words}"
        assert check.text == f"{named}; 3 of 3,000 rows, the first is row 1500"


COLUMNS = {  # the type of a whole column
    "source": ("data_source", 7, "row 0: has no data_source"),
    "reward model as text": ("reward_model", "2", "row 0: has no reward_model.ground_truth"),
    "reward model without a truth": (
        "reward_model",
        {"style": "rule"},
        "row 0: has no reward_model.ground_truth",
    ),
    "reward model as a list": ("reward_model", ["2"], "row 0: has no reward_model.ground_truth"),
    "prompt as text": ("prompt", "hi", "row 0: prompt is str 'hi'"),
    "prompt as texts": ("prompt", ["hi"], "row 0: prompt is list"),
    "prompt without roles": ("prompt", [{"content": "x"}], "row 0: prompt is list"),
    "prompt of numbers": ("prompt", user(7), "row 0: prompt is list"),
    "no source": ("data_source", ..., "row 0: has no data_source"),
    "no prompt": ("prompt", ..., "has no column prompt with the messages"),
    "no reward model": ("reward_model", ..., "row 0: has no reward_model.ground_truth"),
}


@needs_parquet
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_another_type(tmp_path: Path, kind: str) -> None:
    name, value, words = COLUMNS[kind]
    row = {**ROW, name: value} if value is not ... else {k: v for k, v in ROW.items() if k != name}
    check = judged(read(written(tmp_path / "t.parquet", [row] * 2000)))
    assert check.status == "fail" and check.text.startswith(f"/d/t.parquet: {words}"), check.text
    assert check.text.endswith("2,000 of 2,000 rows") or (name == "prompt" and value is ...), check.text


@needs_parquet
def test_rows_without_a_fault(tmp_path: Path) -> None:
    rows = rows_with(lambda row: None)
    for row in rows:
        row |= {"images": None, "videos": [], "extra_info": None}
    rows[5]["extra_info"] = {"index": 5, "task_path": None, "task_id": "create-000"}
    answer = read(written(tmp_path / "t.parquet", rows))
    assert judged(answer) == Check(KEY, "ok", "/d/t.parquet: 3000 rows: chat 3000")
    found = answer.files[KEY]
    assert found.looked == 3000 and sum(group.count for group in found.alike) == 3000
    assert not any(group.shape or group.media for group in found.alike)


@needs_parquet
def test_pictures_are_not_read_to_know_that_they_are_there(tmp_path: Path) -> None:
    rows = rows_with(put("images", [{"bytes": "b" * 1000, "path": "p.png"}]))
    for row in rows:
        row.setdefault("images", None)
    found = read(written(tmp_path / "t.parquet", rows)).files[KEY]
    assert [group.media for group in found.alike if group.row == AT[0]] == ["images"]
    assert "images" in found.columns and "images" not in found.rows[AT[0]]


SCHEMA = """pa.schema([
    ("data_source", pa.string()),
    ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("reward_model", pa.struct([("ground_truth", pa.string())])),
    ("images", pa.list_(pa.binary())),
])"""


@needs_parquet
def test_a_tag_for_a_picture_counts_where_there_is_a_column_for_it(tmp_path: Path) -> None:
    rows = rows_with(put("prompt", user("<image>What is this?")))
    check = judged(read(written(tmp_path / "t.parquet", rows)))
    assert check.status == "ok", "a text about HTML, perhaps"
    assert check.text.endswith("; 3 of them have <image> or the like in a text of their prompt, the first is row 1500: "
                               "it is sent as it is")  # fmt: skip
    for row in rows:
        row["images"] = None
    rows[0]["images"] = []
    check = judged(read(written(tmp_path / "u.parquet", rows, SCHEMA)))
    assert check.status == "fail" and "row 1500: column images has pictures" in check.text


@needs_parquet
def test_other_columns_of_pictures_are_those_that_verl_is_told(tmp_path: Path) -> None:
    rows = rows_with(put("photos", ["p.png"]))
    for row in rows:
        row.setdefault("photos", None)
    path = written(tmp_path / "t.parquet", rows)
    assert judged(read(path)).status == "ok"
    sets = ("trainer.overrides={data.image_key: photos}",)
    check = judged(read(path, *sets), *sets)
    assert check.status == "fail" and "row 1500: column photos has pictures" in check.text


@needs_parquet
def test_verls_own_loops_may_have_pictures(tmp_path: Path) -> None:
    rows = rows_with(put("images", ["p.png"]))
    for row in rows:
        row |= {"agent_name": "single_turn_agent", "images": row.get("images")}
    path = written(tmp_path / "t.parquet", rows)
    assert judged(read(path)).status == "ok"
    rows[AT[1]]["agent_name"] = "liverl_chat"
    check = judged(read(written(tmp_path / "u.parquet", rows)))
    assert check.text.startswith(f"/d/t.parquet: row {AT[1]}: column images has pictures, videos or sounds, which the "
                                 "agent chat cannot hand to the model")  # fmt: skip


@needs_parquet
def test_the_longest_prompt_is_measured_wherever_it_is(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    make = (
        "from tokenizers import Tokenizer, models, pre_tokenizers\n"
        "words = Tokenizer(models.WordLevel({'x': 0}, unk_token='x'))\n"
        f"words.pre_tokenizer = pre_tokenizers.Whitespace(); words.save({str(tokenizer)!r})"
    )
    subprocess.run([PYTHON, "-c", make], check=True)
    path = written(tmp_path / "t.parquet", rows_with(put("prompt", user("a " * 300)), (2345,)))
    prompts = data_rows.Prompts("prompt", str(tokenizer), 10_000)
    answer = data_rows.ask(Path(PYTHON), {KEY: str(path)}, (), (), prompts)
    check = judged(answer, "training.max_prompt_length=200")
    assert "row 2345: prompt has at least 300 tokens, and training.max_prompt_length is 200" in check.text


@needs_parquet
def test_many_sources_hide_no_fault(tmp_path: Path) -> None:
    rows = rows_with(lambda row: None)
    for number, row in enumerate(rows):
        row["data_source"] = f"my/source-{number}"
    rows[-1]["reward_model"] = None
    check = judged(read(written(tmp_path / "t.parquet", rows)), "reward.function=/r.py:f")
    assert check.status == "ok" or "row 2999" in check.text


@needs_parquet
def test_a_file_that_takes_too_long_is_told_as_looked_at_in_part(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", rows_with(lambda row: None))
    answer = data_rows.ask(Path(PYTHON), {KEY: str(path)}, (), (), data_rows.Prompts(seconds=0.0))
    assert judged(answer).text.endswith("; only the first 0 rows were looked at, as reading took too long")


# --- prompts ----------------------------------------------------------------------------------------------------------

PROMPTS: dict[str, tuple[Any, tuple[str, str]]] = {
    "text": (user("hi"), ("", "")),
    "none": (None, (NO_MESSAGES, "")),
    "text only": ("hi", (NO_MESSAGES, "")),
    "mapping": ({"role": "user", "content": "x"}, (NO_MESSAGES, "")),
    "empty": ([], (NO_MESSAGES, "")),
    "list of texts": (["hi"], (NO_MESSAGES, "")),
    "no content": ([{"role": "user"}], (NO_MESSAGES, "")),
    "no role": ([{"content": "x"}], (NO_MESSAGES, "")),
    "role none": ([{"role": None, "content": "x"}], (NO_MESSAGES, "")),
    "content number": (user(7), (NO_MESSAGES, "")),
    "content parts of numbers": (user([7]), (NO_MESSAGES, "")),
    "content empty": (user(""), (NO_TEXT, "")),
    "content none": (user(None), (NO_TEXT, "")),
    "content no parts": (user([]), (NO_TEXT, "")),
    "one of two has text": ([*user(""), *user("x")], ("", "")),
    "parts of text": (user([{"type": "text", "text": "x"}]), ("", "")),
    "parts of text, others null": (user([{"type": "text", "text": "x", "image": None}]), ("", "")),
    "part image": (user([{"type": "image"}, {"type": "text", "text": "x"}]), ("", "a part of type image")),
    "part image only": (user([{"type": "image"}]), ("", "a part of type image")),
    "part with a picture": (user([{"image": "p.png"}]), ("", "a part of type image")),
    "part image_url": (user([{"type": "image_url", "image_url": {"url": "x"}}]), ("", "a part of type image_url")),
    "part video": (user([{"type": "video", "video": "x"}]), ("", "a part of type video")),
    "part input_audio": (user([{"type": "input_audio"}]), ("", "a part of type input_audio")),
    "tag": (user("<image>x"), ("", AS_TEXT)),
    "tag of a video": (user("x <video>"), ("", AS_TEXT)),
    "tag in a part": (user([{"type": "text", "text": "<audio>"}]), ("", AS_TEXT)),
    "another tag": (user("<img>"), ("", "")),
}  # fmt: skip


@pytest.mark.parametrize("kind", PROMPTS)
def test_what_a_prompt_is(kind: str) -> None:
    messages, expected = PROMPTS[kind]
    assert look(messages)[:2] == expected


# --- the judge --------------------------------------------------------------------------------------------------------


def file_of(media: str = "", shape: str = "", **row: Any) -> File:
    changed = {**ROW, **row}
    alike = (Alike(0, 9990), Alike(10, 10, shape, media))
    return File(10_000, (*changed, "images"), {0: ROW, 10: changed}, alike=alike)


@pytest.mark.parametrize(
    ("sets", "kind"),
    [
        ((), "chat"), (("agent.tools=/t.yaml",), "tools"), (("agent.python=a:B",), "python"),
        (("agent.command=[a]",), "command"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("media", ["images", "a part of type image_url"])
def test_rows_with_pictures_are_refused_for_every_agent_of_ours(
    sets: tuple[str, ...], kind: str, media: str
) -> None:
    check = judged(Answer({KEY: file_of(media)}, SCORED), *sets)
    assert check.status == "fail"
    what = "column images has" if media == "images" else f"its prompt has {media}"
    assert f"row 10: {what}" in check.text and f"which the agent {kind} cannot hand" in check.text
    assert check.text.endswith("; 10 of 10,000 rows")


def test_a_prompt_without_text_is_a_fault_only_where_it_is_sent() -> None:
    found = file_of(shape=NO_TEXT)
    assert judged(Answer({KEY: found}, SCORED)).status == "fail"
    for loop in ("single_turn_agent", "tool_agent"):
        assert judged(Answer({KEY: file_of(shape=NO_TEXT, agent_name=loop)}, SCORED)).status == "fail"
    assert judged(Answer({KEY: found}, SCORED), "agent.command=[a]").status == "ok", (
        "its program may know more"
    )


def test_rows_of_several_groups_with_one_fault_are_counted_together() -> None:
    bare = {name: value for name, value in ROW.items() if name != "reward_model"}
    alike = (Alike(0, 9_000), Alike(10, 600), Alike(20, 400))
    rows = {0: {**ROW, "agent_name": "liverl_chat"}, 10: {**bare, "agent_name": "single_turn_agent"}}
    rows[20] = {**bare, "agent_name": "liverl_chat"}
    loops = {"liverl_chat": 9_400, "single_turn_agent": 600}
    found = File(10_000, tuple(ROW), rows, loops, alike=alike)
    assert judged(Answer({KEY: found}, SCORED)).text.endswith("; 1,000 of 10,000 rows")


# --- `plan` -----------------------------------------------------------------------------------------------------------


def test_it_is_said_that_no_row_was_read_where_nothing_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.parquet").write_bytes(parquet({"prompt": ["a"]}, {"prompt": str}))
    monkeypatch.setattr(verl, "interpreter", lambda plan: None)
    sets = (f"data.train_index={tmp_path}/t.parquet", f"data.val_index={tmp_path}/t.parquet")
    loaded = load_config(profile="cpu-verl", sets=[*SMALL, *sets], env={})
    checks = list(verl.data(make_plan(loaded, tmp_path / "run"), loaded.config))
    assert [c.text.partition(":")[0] for c in checks if c.name == "data rows"] == ["no row was read"]
    monkeypatch.setattr(verl, "interpreter", lambda plan: tmp_path / "none")
    checks = list(verl.data(make_plan(loaded, tmp_path / "run"), loaded.config))
    assert [(c.status, c.text.partition(":")[0]) for c in checks if c.name == "data rows"] == [
        ("warn", "no row was read")
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_plan_exits_with_3_if_a_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool
) -> None:
    from liverl_tui.cli import main as cli

    checks = [
        Check("a", "ok", "fine"),
        Check("b", "fail" if fails else "warn", "row 10"),
        Check("c", "ok", "fine"),
    ]
    monkeypatch.setattr(verl, "data", lambda plan, config: iter(checks))
    words = ["plan", "--profile", "cpu-verl", "--name", "n", "--run-root", str(tmp_path), "--other-host"]
    assert cli.run(words) == (3 if fails else 0)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (["fail", "b", "row", "10"] in lines) is fails and ["ok", "c", "fine"] in lines
    assert cli.run([*words, "--json"]) == (3 if fails else 0)
    found = [c["status"] for c in json.loads(capsys.readouterr().out)["checks"] if c["id"] == "data"]
    assert found == [c.status for c in checks]
