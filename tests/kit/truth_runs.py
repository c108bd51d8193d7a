"""Runs of agents that ask for more than the reply that is to be trained: parameters of their own, side questions,
several samples per turn. What each agent was told stands in its trial, to be compared with what verl trained.

The agents need nothing but Python, and do the same in every run: what a row asks for is in its ``extra_info``.
"""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from kit.real import trial_dirs
from kit.trained import read, rows_of, sampled_parts

TOKENS = 24  # of a reply at most
CANDIDATES = 4  # per turn, of an agent that goes on with the best of them
TURNS = 2  # of the conversation of every agent
# What an agent asks for in every request. The trainer samples otherwise.
ASKED: dict[str, Any] = {"seed": 7, "temperature": 0.3, "top_p": 0.5, "top_k": 3}
GENERATION = {"do_sample": True, "top_k": 20, "top_p": 0.8, "temperature": 0.6}  # of a model's own file

# Number of the text behind the last header of an assistant's turn, 0 to 0.999: two texts seldom have the same.
REWARD = """
import zlib

def score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    last = solution_str.rsplit("assistant\\n", 1)[-1].strip()
    return zlib.crc32(last.encode()) % 1000 / 1000
"""
COMMAND = '''
import json, os, threading, urllib.request, zlib

task = json.load(open(os.environ["LIVERL_TASK"]))
extra, question = task["row"]["extra_info"], task["messages"]
asked, tokens = json.loads(extra["asked"]), extra["tokens"]
said = []  # of every reply: what it is for, its text, its ids (null: not told), their number


def post(url, body, headers):
    body = {"max_tokens": tokens, **asked, **body}
    request = urllib.request.Request(url, json.dumps(body).encode(), {**headers, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


def openai(messages, use):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "logprobs": True}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    (choice,) = answer["choices"]
    ids = [int(each["token"].split(":")[1]) for each in choice["logprobs"]["content"]]
    text = choice["message"]["content"] or ""
    logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
    count = answer["usage"]["completion_tokens"]
    said.append({"use": use, "text": text, "ids": ids, "logprobs": logprobs, "tokens": count})
    return text


def anthropic(messages, use):
    system = "".join(each["content"] for each in messages if each["role"] == "system")
    rest = [each for each in messages if each["role"] != "system"]
    body = {"model": os.environ["ANTHROPIC_MODEL"], "messages": rest, **({"system": system} if system else {})}
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    answer = post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", body, headers)
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    said.append({"use": use, "text": text, "ids": None, "tokens": answer["usage"]["output_tokens"]})
    return text


def best(messages):
    """Several samples of one prompt at the same time: the one whose text has the largest number."""
    before = len(said)
    threads = [threading.Thread(target=openai, args=(messages, "candidate")) for _ in range(extra["candidates"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == before + extra["candidates"]
    chosen = max(said[before:], key=lambda each: zlib.crc32(each["text"].encode()))
    chosen["use"] = "main"
    return chosen["text"]


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def main():
    talk = anthropic if extra["api"] == "anthropic" else openai
    ask = best if extra["candidates"] else lambda messages: talk(messages, "main")
    side = extra["side"]
    messages = ([system("You count apples.")] if extra["system"] else []) + question
    if side:
        openai([system("Write a title of three words."), *question], "side")
    for turn in range(extra["turns"]):
        text = ask(messages)
        if side and turn == 0:
            anthropic([system("You are a judge."), user("Is this right? " + text)], "side")
            openai([user("Summarise this page: apples are red or green.")], "side")
        messages = [*messages, {"role": "assistant", "content": text}, user("And of pears?")]
    if side:
        openai([system("You are a judge."), user("Is it well said? " + text)], "side")
    if extra["closes"]:
        talk(messages, "main")
    json.dump(said, open("said.json", "w"))


main()
'''
CLASS = """
import json


class Agent:
    async def run(self, task, chat, dir):
        extra, messages = task["row"]["extra_info"], list(task["messages"])
        said = []
        for _ in range(extra["turns"]):
            message = await chat(messages, max_tokens=extra["tokens"], **json.loads(extra["asked"]))
            said.append({"use": "main", "text": message["content"], "ids": None})
            messages += [message, {"role": "user", "content": "And of pears?"}]
        (dir / "said.json").write_text(json.dumps(said))
"""
WRITE = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""


def row(index: int, kind: str = "command", **extra: Any) -> dict[str, Any]:
    """A row for an agent. ``extra``: what it does, in its ``extra_info``: ``asked`` (parameters of every request),
    ``api``, ``system`` (whether it has a system prompt), ``side`` (whether it asks side questions), ``candidates`` (per
    turn, 0: one reply), ``closes`` (whether it says one thing more at its end)."""
    asked = json.dumps(extra.pop("asked", {}))
    does = {"api": "openai", "system": False, "side": False, "candidates": 0, "closes": False, **extra}
    return {
        "data_source": "apples",
        "agent_name": f"liverl_{kind}",
        "prompt": [{"role": "user", "content": f"Tom has {index} apples and buys 3. How many has he?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(index + 3)},
        "extra_info": {
            "split": "train",
            "index": index,
            "task_path": "",
            "asked": asked,
            "turns": TURNS,
            "tokens": TOKENS,
            **does,
        },
    }


def write_run(folder: Path, rows: Sequence[Mapping[str, Any]], python: str) -> Path:
    """The user's files and the configuration of a run. ``python``: one with pyarrow."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "test"):
        file = folder / f"{name}.parquet"
        subprocess.run([python, "-c", WRITE, file], input=json.dumps(rows), text=True, check=True)
    (folder / "reward.py").write_text(REWARD)
    (folder / "agent.py").write_text(COMMAND)
    (folder / "my_agent.py").write_text(CLASS)
    settings = {
        "data": {"train_index": "train.parquet", "val_index": "test.parquet"},
        "agent": {
            "kind": "command",
            "path": ["."],
            "python": "my_agent:Agent",
            "command": [sys.executable, "-S", "-E", str(folder / "agent.py")],
        },
        "reward": {"function": "reward.py:score"},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(settings))
    return path


def with_generation_config(smoke: Path, folder: Path) -> Path:
    """A copy of the smoke model and its tasks, whose model asks for parameters of its own."""
    subprocess.run(["cp", "-r", smoke, folder], check=True)
    path = folder / "model" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | GENERATION))
    return folder


def number_of(text: str) -> float:
    """The reward of a text, as ``REWARD`` computes it."""
    return zlib.crc32(text.rsplit("assistant\n", 1)[-1].strip().encode()) % 1000 / 1000


class Told:
    """What is known of one trial. ``said``: by its agent, see ``COMMAND``; ``rows``: of its session."""

    def __init__(self, trial: Path) -> None:
        self.trial = trial
        self.document: dict[str, Any] = read(trial / "proxy_trajectory.json")
        self.said: list[dict[str, Any]] = json.loads((trial / "work" / "said.json").read_text())
        self.rows = rows_of(trial)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What its trainer knew before it began."""
        return read(self.trial / "liverl.json")

    @cached_property
    def result(self) -> dict[str, Any]:
        """Its result."""
        return read(self.trial / "result.json")

    @property
    def key(self) -> str:
        """The trial's name in verl's dump."""
        return f"{self.facts['uid']}_{self.facts['session']}"

    @property
    def group(self) -> str:
        """Trials of the same row of the same step have the same."""
        return str(self.facts["uid"])

    @property
    def extra(self) -> dict[str, Any]:
        """The row's ``extra_info``."""
        return dict(read(self.trial / "task.json")["row"]["extra_info"])

    @property
    def tells_its_last(self) -> bool:
        """Whether its session can know which reply it has taken last: not if it ends with several samples."""
        return not self.extra["candidates"] or bool(self.extra["closes"])

    def uses(self, use: str) -> list[dict[str, Any]]:
        """The replies for one use: main, side, candidate."""
        return [each for each in self.said if each["use"] == use]

    @property
    def trained(self) -> list[list[int]]:
        """The ids of each reply in the rows."""
        return [part for one in self.rows for part in sampled_parts(one)]

    @property
    def not_trained(self) -> dict[str, int]:
        """The session's, by the reason."""
        return dict(self.document.get("not_trained", {}))


def nothing_is_lost(one: Told) -> None:
    """Every token that was sampled for a trial is in one row, or counted."""
    trained = sum(map(len, one.trained))
    assert trained > 0
    assert trained + sum(one.not_trained.values()) == one.document["counters"]["total_completion_tokens"]


def told(run_dir: Path) -> list[Told]:
    """Every trial of a run. None has failed, and every sampled token of each is in a row or counted."""
    trials = []
    for trial in trial_dirs(run_dir):
        failed = read(trial / "result.json")["exception_info"]
        assert failed is None, (trial, failed)
        one = Told(trial)
        nothing_is_lost(one)
        assert one.result["divergences"] == []
        assert sum(map(len, one.trained)) == one.result["tokens_trained"]
        assert one.result["not_trained"] == one.not_trained
        trials.append(one)
    return trials


def groups_differ(trials: Sequence[Told]) -> None:
    """Equal first requests of the trials of a row got different replies."""
    first: dict[str, list[tuple[int, ...]]] = {}
    for one in trials:
        first.setdefault(one.group, []).append(tuple(one.trained[0]))
    assert all(len(replies) > 1 for replies in first.values())
    alike = [group for group, replies in first.items() if len(set(replies)) == 1]
    assert len(alike) <= len(first) / 10, f"{len(alike)} of {len(first)} groups have one reply"


def steps_of(run_dir: Path) -> list[dict[str, float]]:
    """verl's metrics of each step."""
    (path,) = (run_dir / "attempt_001").glob("metrics.verl*.jsonl")
    return [json.loads(line)["data"] for line in path.read_text().splitlines()]


def counted_in_metrics(run_dir: Path, trials: Sequence[Told]) -> None:
    """verl's metrics of each step have the replies and the tokens that its trials did not train, by the reason."""
    tokens: dict[int, Counter[str]] = {}
    asides: Counter[int] = Counter()
    for one in trials:
        step = int(one.facts["step"])
        tokens.setdefault(step, Counter()).update(one.not_trained)
        asides[step] += one.document["counters"].get("asides", 0)
    for number, data in enumerate(steps_of(run_dir), 1):
        for reason, count in tokens[number].items():
            assert data[f"liverl/not_trained/{reason}"] == count
        assert data["liverl/asides"] == asides[number]


def asides_are_left_out(trials: Sequence[Told]) -> None:
    """The row of each trial holds the replies of its conversation and nothing else; side questions are counted."""
    for one in trials:
        main, side = one.uses("main"), one.uses("side")
        assert one.trained == [each["ids"] for each in main], one.trial
        assert [each["kind"] for each in one.rows] == ["main"]
        assert one.not_trained == ({"aside": sum(each["tokens"] for each in side)} if side else {})
        assert one.document["counters"].get("asides", 0) == len(side)


def rewards_are_of_the_conversation(
    trials: Sequence[Told], scores: Mapping[str, Sequence[float]], texts: Sequence[str]
) -> None:
    """The reward of each trial is that of the last reply of its conversation. ``scores``: of the rows that verl has
    trained, by trial; ``texts``: of the response of each trial's last row."""
    telling = 0
    for one, text in zip(trials, texts, strict=True):
        reward = number_of(text)
        # verl's are in single precision
        assert scores[one.key] == [pytest.approx(reward)] * len(one.rows), (one.trial, reward)
        assert one.result["verifier_result"]["rewards"]["reward"] == pytest.approx(reward)
        if one.tells_its_last:
            last = one.uses("main")[-1]["text"]
            assert reward == number_of(last), (one.trial, text, last)
        telling += reward not in [number_of(each["text"]) for each in one.uses("side")]
    assert telling > 0.9 * len(trials), "the rewards tell which reply was scored"


def responses(trials: Sequence[Told]) -> list[list[int]]:
    """The ids of the last row of each trial, behind its prompt."""
    last = [one.rows[-1] for one in trials]
    return [row["traj_acc_ids"][row["initial_prompt_token_len"] :] for row in last]


def the_chosen_are_trained(trials: Sequence[Told]) -> None:
    """Of several samples per turn the one with which the agent went on is trained; the others are counted as asides."""
    equal, likely = 0, 0.0  # pairs of samples of one prompt
    for one in trials:
        main, others = one.uses("main"), one.uses("candidate")
        samples = one.said[: one.extra["turns"] * CANDIDATES]
        for at in range(0, len(samples), CANDIDATES):
            for a, b in itertools.combinations(samples[at : at + CANDIDATES], 2):
                equal += a["ids"] == b["ids"]
                likely += (math.exp(sum(a["logprobs"])) + math.exp(sum(b["logprobs"]))) / 2
        # A sample that was dropped may have been the first one behind its history: the chosen one opens a row then.
        assert [each["kind"] for each in one.rows] == ["main", *["rewrite"] * (len(one.rows) - 1)]
        for at, (ids, chosen) in enumerate(zip(one.trained, main, strict=True)):
            last = at == len(main) - 1 and not one.tells_its_last
            # Nothing tells which of the last ones the agent has taken; replies with the same text are alike to it.
            allowed = [s["ids"] for s in (*main, *others) if last or s["text"] == chosen["text"]]
            assert ids in allowed, (one.trial, at)
        sampled = sum(each["tokens"] for each in one.said)
        assert one.not_trained == {"aside": sampled - sum(map(len, one.trained))}
        assert one.document["counters"]["asides"] == len(others)
        assert one.document["counters"].get("num_joined", 0) == 0
    assert equal < 2 * likely + 10, "each of the requests had a sample of its own"
