"""The rows, agents and rewards of a user's own run, before its start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from liverl.config import load_config
from liverl.config.schema import RunConfig
from liverl.model import Check
from liverl.preflight import agents, batches, data_rows, micro_batches
from liverl.preflight.data_rows import Answer, File, Scored

PYTHON = os.environ.get("LIVERL_TEST_VERL_PYTHON", "")
KEY = "data.train_index"
MESSAGES = [{"role": "user", "content": "What is 1 + 1?"}]
ROW: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "prompt": MESSAGES,
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 0, "split": "train"},
}
SCORED = Scored(exact=("openai/gsm8k",), beginnings=("aime",))


SMALL = ("training.train_batch_size=1", "training.train_prompt_mini_batch_size=1")  # of few rows


def config(*sets: str) -> RunConfig:
    return load_config(profile="cpu-verl", sets=[*SMALL, *sets], env={}).config


def file(row: dict[str, Any] | None = None, count: int = 5, **loops: int) -> File:
    row = ROW if row is None else row
    columns = (*row, "agent_name") if loops else tuple(row)
    rows = {n: {**row, "agent_name": loop} for n, loop in enumerate(loops)} or {0: row}
    return File(count=count, columns=columns, rows=rows if count else {}, loops=loops)


def told(found: File, *sets: str, scored: Scored | None = SCORED) -> tuple[str, str]:
    answer = Answer(files={KEY: found}, scored=scored, unknown="OSError: gone")
    (check,) = data_rows.checks(config(*sets), answer, {KEY: "/d/t.parquet"})
    assert check.name == KEY and check.text.startswith("/d/t.parquet: ")
    return check.status, check.text.removeprefix("/d/t.parquet: ")


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in ROW.items() if name != key}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (File(error="Parquet magic bytes not found"), "cannot be read: Parquet magic bytes not found"),
        (file(count=0), "has no rows"),
        (file(without("prompt")), "has no column prompt with the messages; it has data_source, reward_model"),
        (file({**ROW, "prompt": "hi"}), "row 0: prompt is str 'hi'; expected a list of messages with role"),
        (file({**ROW, "prompt": []}), "row 0: prompt is list '[]'"),
        (file({**ROW, "prompt": [{"role": "user"}]}), "row 0: prompt is list"),
        (file(without("data_source")), "row 0: has no data_source"),
        (file(without("reward_model")), "row 0: has no reward_model.ground_truth"),
        (file({**ROW, "reward_model": {"ground_truth": None}}), "row 0: has no reward_model.ground_truth"),
        (
            file({**ROW, "data_source": "my/own"}),
            "row 0: verl has no reward function for data_source 'my/own'; set reward.function",
        ),
        (
            file(liverl_tool=2),
            "column agent_name has 'liverl_tool', which is no agent loop; did you mean liverl_tools?",
        ),
    ],
)
def test_rows_that_could_not_be_trained_are_refused(found: File, words: str) -> None:
    status, text = told(found)
    assert status == "fail" and text.startswith(words)


@pytest.mark.parametrize(
    ("found", "sets", "words"),
    [
        (file(), (), "5 rows: chat 5"),
        (file(), ("agent.tools=/t.yaml",), "5 rows: tools 5"),
        (file(), ("agent.python=a:B",), "5 rows: python 5"),
        (file(without("reward_model")), ("agent.command=[a]",), "5 rows: command 5"),
        (file({**ROW, "extra_info": {"task_id": "create-000"}}), (), "5 rows: task 5"),
        (file({**ROW, "data_source": "aime24"}), (), "5 rows: chat 5"),
        (file({**ROW, "data_source": "my/own"}), ("reward.function=/r.py:f",), "5 rows: chat 5"),
        (
            file({**ROW, "data_source": "my/own"}),
            ("trainer.overrides={reward.custom_reward_function.path: /r.py}",),
            "5 rows: chat 5",
        ),
        (file(liverl_chat=2, liverl_session=3), ("agent.python=a:B",), "5 rows: chat 2, python 3"),
        (
            file(tool_agent=2, liverl_chat=3),
            (),
            "5 rows: tool_agent 2, chat 3; 2 of them are run by verl's own agent loop, past the proxy",
        ),
        (
            file(mine=5),
            ("trainer.overrides={actor_rollout_ref.rollout.agent.agent_loop_config_path: /l.yaml}",),
            "5 rows: mine 5",
        ),
        (
            file({**without("prompt"), "chat": MESSAGES}),
            ("trainer.overrides={data.prompt_key: chat}",),
            "5 rows",
        ),
    ],
)
def test_rows_that_can_be_trained_are_told_by_their_kinds(
    found: File, sets: tuple[str, ...], words: str
) -> None:
    assert told(found, *sets) == ("ok", words) or told(found, *sets)[1].startswith(f"{words}:")


@pytest.mark.parametrize("loop", ["tool_agent", "single_turn_agent"])
def test_rows_of_verls_own_loops_need_a_reward_as_others_do(loop: str) -> None:
    words = "row 0: verl has no reward function for data_source 'my/own'; set reward.function"
    own = {**ROW, "data_source": "my/own"}
    assert told(file(own, **{loop: 5}))[1] == words
    assert told(file(own), f"verl.agent_loop={loop}")[1] == words
    assert told(file(without("reward_model"), **{loop: 5}))[1].startswith("row 0: has no reward_model.ground")
    assert told(file(without("data_source"), **{loop: 5}))[1].startswith("row 0: has no data_source")
    assert told(file(own, **{loop: 5}), "reward.function=/r.py:f")[0] == "ok"
    assert told(file(ROW, **{loop: 5}))[0] == "ok"


def test_each_row_is_judged_by_its_own_agent() -> None:
    task = {"prompt": MESSAGES, "extra_info": {"task_id": "create-000"}, "agent_name": "liverl_session"}
    chat = {**ROW, "data_source": "my/own", "agent_name": "single_turn_agent"}
    loops = {"liverl_session": 900, "single_turn_agent": 100}
    found = File(count=1000, columns=(*ROW, "agent_name"), rows={0: task, 900: chat}, loops=loops)
    words = "row 900: verl has no reward function for data_source 'my/own'; set reward.function"
    assert told(found) == ("fail", words)
    status, text = told(found, "reward.function=/r.py:f")
    assert status == "ok" and text.startswith(
        "1000 rows: task 900, single_turn_agent 100; 100 of them are run"
    )


@pytest.mark.parametrize(
    ("overrides", "status"),
    [
        ("{reward.reward_model.enable: true}", "ok"),
        ("{reward_model.enable: true}", "ok"),
        ("{reward.reward_model.enable: false}", "fail"),
        ("{reward.reward_manager.module.path: /m.py}", "ok"),
        # Such a function gets the ground truth and the source whatever else there is.
        ("{reward.reward_model.enable: true, reward.custom_reward_function.path: /r.py}", "fail"),
    ],
)
def test_rows_that_a_model_rewards_need_no_ground_truth(overrides: str, status: str) -> None:
    assert told(file(without("reward_model")), f"trainer.overrides={overrides}")[0] == status


def test_a_source_is_not_judged_if_verls_function_cannot_be_read() -> None:
    own = file({**ROW, "data_source": "my/own"})
    status, text = told(own, scored=None)
    assert status == "ok" and text.endswith(
        "; whether verl scores their data_source is not known (OSError: gone)"
    )
    assert "not known" not in told(own, "reward.function=/r.py:score", scored=None)[1], (
        "it does not matter then"
    )
    assert "not known" not in told(file(), scored=SCORED)[1]


def found_agents(*sets: str, missing: dict[str, str] | None = None) -> dict[str, tuple[str, str]]:
    answer = Answer(missing=missing or {})
    return {c.name: (c.status, c.text) for c in agents.checks(config(*sets), answer)}


def test_fewer_rows_than_a_batch_are_refused() -> None:
    sets = ("training.train_batch_size=5", "training.total_steps=3")
    assert told(file(count=5), *sets)[0] == "ok"
    words = "has 4 rows, and training.train_batch_size is 5: verl trains whole batches only"
    assert told(file(count=4), *sets) == ("fail", words)
    answer = Answer(files={"data.val_index": file(count=4)}, scored=SCORED)
    (check,) = data_rows.checks(config(*sets), answer, {"data.val_index": "/d/v.parquet"})
    assert check.status == "ok", "a validation takes what there is"


@pytest.mark.parametrize(
    ("sets", "words", "epochs"),
    [
        (("training.total_epochs=10",), "", ""),
        (("training.total_steps=null",), "", ""),
        (
            (),
            "11 rows are 2 steps of 5 an epoch: training.total_epochs 1 ends the training after 2 of 20 steps",
            "--set training.total_epochs=10",
        ),
        (
            ("trainer.overrides={trainer.total_epochs: 3}",),
            "11 rows are 2 steps of 5 an epoch: training.total_epochs 3 ends the training after 6 of 20 steps",
            "at least 10",
        ),
        (("trainer.overrides={trainer.total_training_steps: 2}",), "", ""),
        (("trainer.overrides={data.gen_batch_size: 11}", "training.total_steps=1"), "", ""),
        (("trainer.overrides={trainer.total_epochs: '${x}'}",), "", ""),
    ],
)
def test_epochs_that_are_over_before_the_steps_are_told(
    sets: tuple[str, ...], words: str, epochs: str
) -> None:
    given = config("training.train_batch_size=5", "training.total_epochs=1", "training.total_steps=20", *sets)
    answer = Answer(files={KEY: file(count=11)}, scored=SCORED)
    (found,) = data_rows.checks(given, answer, {KEY: "/d/t.parquet"})
    fix = f"add rows, train fewer steps, or train more epochs: {epochs}"
    assert (found.status, found.fix) == (("warn", fix) if words else ("ok", ""))
    assert not words or found.text == f"/d/t.parquet: {words}"


@pytest.mark.parametrize(
    ("sets", "rows", "words", "epochs"),
    [
        ((), 4, "", ""),
        ((), 1, "1 row x training.total_epochs 2 = 2 prompts; one version of the parameters takes 8", "8"),
        (
            ("verl.fully_async.total_rollout_steps=16",),
            5,
            "5 rows x training.total_epochs 2 = 10 prompts, but 16 are to be sampled: verl would end after 1 of 2 "
            "versions",
            "4",
        ),
    ],
)
def test_too_few_prompts_for_the_fully_asynchronous_trainer(
    sets: tuple[str, ...], rows: int, words: str, epochs: str
) -> None:
    numbers = ("training.total_epochs=2", "training.total_steps=null", "training.train_batch_size=2")
    parts = ("training.train_prompt_mini_batch_size=2", "verl.fully_async.trigger_parameter_sync_step=4")
    given = config("verl.trainer_mode=fully_async", "verl.rollout_gpus=1", *numbers, *parts, *sets)
    answer = Answer(files={KEY: file(count=rows)}, scored=SCORED)
    found = [c for c in data_rows.checks(given, answer, {KEY: "/d/t.parquet"}) if c.status == "fail"]
    assert [check.text for check in found] == ([f"/d/t.parquet: {words}"] if words else [])
    fix = f"add rows, or train more epochs: --set training.total_epochs={epochs}"
    assert [check.fix for check in found] == ([fix] if words else [])


@pytest.mark.parametrize("profile", ["cpu-verl", "liverl-gen1", "h200-smoke"])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 7, 13])
def test_the_smaller_batch_that_is_named_fits_rows_and_gpus(profile: str, rows: int) -> None:
    def batch_checks(config: RunConfig) -> list[Check]:
        answer = Answer(files={"data.train_index": file(count=rows)}, scored=SCORED)
        read = data_rows.checks(config, answer, {"data.train_index": "/d/t.parquet"})
        return [*read, batches.batches(config), *micro_batches.checks(config)]

    before = load_config(profile=profile, env={}).config
    if before.training.train_batch_size <= rows:
        assert not [check for check in batch_checks(before) if "trains whole batches only" in check.text]
        return
    (short,) = [check for check in batch_checks(before) if "trains whole batches only" in check.text]
    other = {check.name for check in batch_checks(before) if check.status == "fail"} - {short.name}
    if not short.patch:
        assert "add rows: no batch of at most" in short.fix
        return
    sets = [f"{key}={value}" for key, value in short.patch.items()]
    assert all(f"--set {one}" in short.fix for one in sets)
    after = batch_checks(load_config(profile=profile, sets=sets, env={}).config)
    assert {check.name for check in after if check.status == "fail"} <= other
    assert int(short.patch["training.train_batch_size"]) <= rows


def test_every_profile_for_cpus_has_a_batch_for_two_rows() -> None:
    """Otherwise the test above could pass without a patch."""
    assert batches.largest(load_config(profile="cpu-verl", env={}).config, 2)


def test_prompts_that_are_too_long_are_refused_with_their_row() -> None:
    sets = ("training.max_prompt_length=200",)
    found = File(count=900, columns=tuple(ROW), rows={0: ROW, 7: ROW}, tokens={0: 200, 7: 201})
    status, text = told(found, *sets)
    assert status == "fail" and text == (
        "row 7: prompt has at least 201 tokens, and training.max_prompt_length is 200: shorten it, raise that key, or "
        "let verl leave such rows out (trainer.overrides: {data.filter_overlong_prompts: true})"
    )
    assert told(found, "training.max_prompt_length=201")[0] == "ok"
    assert told(found, *sets, "trainer.overrides={data.filter_overlong_prompts: true}")[0] == "ok"
    assert told(found, *sets, "agent.command=[sh]")[0] == "ok", "the program decides what it sends"
    assert told(found, *sets, "verl.agent_loop=tool_agent")[0] == "ok", "verl cuts them"


def test_nothing_is_said_of_what_is_not_set() -> None:
    assert found_agents() == {} and agents.modules(config()) == ()


def test_programs_are_looked_for(tmp_path: Path) -> None:
    own = tmp_path / "agent"
    own.write_text("#!/bin/sh\n")
    refused = ("fail", f"{own} is not executable; chmod +x makes it so")
    assert found_agents(f"agent.command=[{own}]", "agent.verifier=[no-such-program]") == {
        "agent.command": refused,
        "agent.verifier": ("fail", "there is no program no-such-program"),
    }
    own.chmod(0o755)
    assert found_agents(f"agent.command=[{own}]") == {"agent.command": ("ok", str(own))}


@pytest.mark.parametrize(
    ("text", "name", "status", "words"),
    [
        ("def score(**given): ...", "score", "ok", "score of reward.py"),
        ("async def score(**given): ...", "score", "ok", "score of reward.py"),
        ("score = lambda **given: 1", "score", "ok", "score of reward.py"),
        ("from other import first as score", "score", "skipped", "score is no function that"),
        ("from other import *", "score", "skipped", "score is no function that"),
        (
            "def score(answer, truth): ...",
            "score",
            "fail",
            "reward.py:1: score(answer, truth) has no argument",
        ),
        ("def score(x): ...", "scor", "fail", "defines no scor; did you mean score?"),
        ("def score(x: ...", "score", "fail", "is not Python: "),
    ],
)
def test_the_reward_function_is_looked_for(
    tmp_path: Path, text: str, name: str, status: str, words: str
) -> None:
    (tmp_path / "reward.py").write_text(text)
    found = found_agents(f"reward.function={tmp_path}/reward.py:{name}")["reward.function"]
    assert found[0] == status and words in found[1]


def test_a_reward_file_with_a_slip_in_its_name_gets_the_one_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "myreward.py").write_text("")
    found = found_agents(f"reward.function={tmp_path}/myrewrd.py:f")["reward.function"]
    assert found[0] == "fail" and found[1].endswith("No such file or directory; did you mean myreward.py?")


def test_a_reward_file_that_is_missing_is_told(tmp_path: Path) -> None:
    found = found_agents(f"reward.function={tmp_path}/reward.py:f", f"agent.functions={tmp_path}/tools.py")
    assert found["reward.function"] == (
        "fail",
        f"cannot read {tmp_path}/reward.py: No such file or directory",
    )
    assert found["agent.functions"] == ("fail", f"cannot read {tmp_path}/tools.py: No such file or directory")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tools: [", "is not YAML"),
        ("a: 1", "has no list `tools` with verl's tool configuration"),
        ("tools: []", "has no list `tools` with verl's tool configuration"),
        ("tools: [{class_name: Search}]", "tools[0] has no class_name such as my_tools.Search"),
        (
            "tools: [{class_name: my_tools.Search}]",
            "module my_tools cannot be imported: gone; agent.path adds",
        ),
    ],
)
def test_tools_that_verl_could_not_load_are_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tools.yaml"
    path.write_text(text)
    status, told = found_agents(f"agent.tools={path}", missing={"my_tools": "gone"})["agent.tools"]
    assert status == "fail" and words in told


def test_the_modules_of_tools_and_agents_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "tools.yaml"
    path.write_text("tools: [{class_name: my.tools.Search}, {class_name: my.tools.Read}]")
    sets = (f"agent.tools={path}", "agent.python=mine.agent:Agent")
    assert agents.modules(config(*sets)) == ("mine.agent", "my.tools")
    assert found_agents(*sets, missing={"mine.agent": "gone"})["agent.python"][0] == "fail"
    words = "module my.tools can be imported; it has no source in which Search could be looked for"
    assert found_agents(*sets)["agent.tools"] == ("skipped", f"{path}: {words}")


def test_an_interpreter_finds_modules_and_says_why_not(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("raise RuntimeError('not today')")
    answer = data_rows.ask(Path(sys.executable), {}, ("mine", "gone", "broken.part"), (str(tmp_path),))
    assert answer.missing == {"gone": "there is no such module", "broken.part": "RuntimeError: not today"}
    assert answer.scored is None, "there is no verl here"
    assert answer.unknown == "LookupError: verl is not installed"


def test_classes_are_looked_for_in_the_source_of_their_module(tmp_path: Path) -> None:
    source, tools = tmp_path / "mine.py", tmp_path / "tools.yaml"
    source.write_text("class Search: ...\nclass Agent:\n    async def run(self, task, chat, dir): ...\n")
    tools.write_text("tools: [{class_name: mine.Serch}]")
    answer = data_rows.ask(Path(sys.executable), {}, ("mine", "json"), (str(tmp_path),))
    assert answer.sources["mine"] == str(source) and answer.sources["json"].endswith("json/__init__.py")

    def found(*sets: str) -> tuple[str, str]:
        (check,) = agents.checks(config(*sets), answer)
        return check.status, check.text

    assert found(f"agent.tools={tools}") == ("fail", f"{source} defines no Serch; did you mean Search?")
    assert found("agent.python=mine:Agnt") == ("fail", f"{source} defines no Agnt; did you mean Agent?")
    assert found("agent.python=mine:Agent") == ("ok", "Agent of mine.py")
    source.write_text("class Agent:\n    async def run(self, task): ...\n")
    assert found("agent.python=mine:Agent")[1].startswith(
        f"{source}:2: Agent.run(self, task) takes 1 argument"
    )
    source.write_text("def __getattr__(name): ...\n")
    assert found("agent.python=mine:Agnt")[0] == "skipped", "it may make any"
    source.write_text("class (:\n")
    assert found("agent.python=mine:Agent")[1] == f"{source} is not Python: line 1: invalid syntax"


def test_what_a_users_files_import_is_looked_for(tmp_path: Path) -> None:
    text = (
        "import gone.part, json\ntry:\n    import spare\nexcept ImportError: pass\ndef f(**_): import later\n"
    )
    (tmp_path / "r.py").write_text(f"from . import near\nfrom .other import x\nfrom lost import x\n{text}")
    key = f"reward.function={tmp_path}/r.py:f"
    assert agents.modules(config(key)) == ("gone", "json", "lost")
    assert agents.modules(config(f"agent.functions={tmp_path}/r.py")) == ("gone", "json", "lost")
    missing = {"gone": "there is no such module"}
    words = f"{tmp_path}/r.py imports gone, which cannot be imported: there is no such module"
    assert found_agents(key, missing=missing)["reward.function"] == ("fail", words)
    assert found_agents(f"agent.functions={tmp_path}/r.py", missing=missing)["agent.functions"] == (
        "fail",
        words,
    )
    assert found_agents(key)["reward.function"] == ("ok", "f of r.py")


def test_an_interpreter_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        data_rows.ask(tmp_path / "python", {}, (), ())
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho first >&2\necho 'no module json' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(ValueError, match=r"\Ano module json\Z"):
        data_rows.ask(broken, {}, (), ())


@pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
def test_verls_environment_reads_rows_and_knows_its_sources(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    loops = ["tool_agent"] * 3000 + ["mine"] + ["tool_agent"] * 2
    rows = f"[{{**{ROW!r}, 'agent_name': loop, 'n': n}} for n, loop in enumerate({loops!r})]"
    write = f"pq.write_table(pa.Table.from_pylist({rows}), {str(path)!r}, row_group_size=2000)"
    subprocess.run([PYTHON, "-c", f"import pyarrow as pa, pyarrow.parquet as pq; {write}"], check=True)
    answer = data_rows.ask(Path(PYTHON), {KEY: str(path)}, (), ())
    found = answer.files[KEY]
    assert (found.count, found.loops) == (3003, {"tool_agent": 3002, "mine": 1})
    assert found.tokens == {}
    assert found.rows == {n: {**ROW, "agent_name": loops[n], "n": n} for n in (0, 1, 2, 3000)}
    assert answer.scored is not None and answer.scored.has("openai/gsm8k") and answer.scored.has("aime2024")
    assert not answer.scored.has("my/own")


@pytest.mark.skipif(not PYTHON, reason="LIVERL_TEST_VERL_PYTHON names no Python with verl 0.9.1")
def test_verls_environment_counts_the_tokens_of_prompts(tmp_path: Path) -> None:
    path, tokenizer = tmp_path / "t.parquet", tmp_path / "tokenizer.json"
    rows = [{"chat": [{"role": "user", "content": "a b c"}, {"role": "user", "content": "d e"}]}]
    make = (
        f"import pyarrow as pa, pyarrow.parquet as pq; pq.write_table(pa.Table.from_pylist({rows!r}), {str(path)!r})\n"
        "from tokenizers import Tokenizer, models, pre_tokenizers\n"
        "words = Tokenizer(models.WordLevel({'x': 0}, unk_token='x'))\n"
        f"words.pre_tokenizer = pre_tokenizers.Whitespace(); words.save({str(tokenizer)!r})"
    )
    subprocess.run([PYTHON, "-c", make], check=True)
    for longest, tokens in ((100, 5), (5, 3), (6, 3), (7, 4)):
        prompts = data_rows.Prompts("chat", str(tokenizer), longest)
        answer = data_rows.ask(Path(PYTHON), {KEY: str(path)}, (), (), prompts)
        assert answer.files[KEY].tokens == {0: tokens}


def test_each_file_of_an_own_run_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reward, module, tools = tmp_path / "reward.py", tmp_path / "mine.py", tmp_path / "tools.yaml"
    reward.write_text(
        "import json\n\n\ndef score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n"
    )
    module.write_text("class One:\n    pass\n\n\nclass Two:\n    pass\n")
    tools.write_text("tools: [{class_name: mine.One}, {class_name: mine.Two}]\n")
    parsed: list[bytes | str] = []
    parse, decode = agents.ast.parse, agents.decode_yaml

    def counted(source: bytes, *rest: Any, **more: Any) -> Any:
        parsed.append(source)
        return parse(source, *rest, **more)

    monkeypatch.setattr(agents.ast, "parse", counted)
    monkeypatch.setattr(agents, "decode_yaml", lambda text: parsed.append(text) or decode(text))
    one = config(f"reward.function={reward}:score", f"agent.tools={tools}")
    parsed.clear()
    answer = Answer(sources={"mine": str(module)})
    for _ in range(2):
        assert agents.modules(one) == ("json", "mine")
        assert {check.name for check in agents.checks(one, answer)} == {"agent.tools", "reward.function"}
        expected = [file.read_bytes() for file in (reward, module)] + [tools.read_text()]
        assert sorted(map(str, parsed)) == sorted(map(str, expected))
        parsed.clear()
        reward.write_text(reward.read_text() + "\n")  # it is read again, and so it is parsed again
