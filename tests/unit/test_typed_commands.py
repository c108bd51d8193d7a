"""Typed commands: what a line means, what is wrong with it, and how it can go on."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, call

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.screens import NOW, gpu, replica_of, service, snapshot, trial, view

from liverl.model import ReplicaSet, StepTrials, TrialsStatus
from liverl_tui.data.view import View
from liverl_tui.typed.command import Here, TypedError
from liverl_tui.typed.table import COMMANDS, act_of_line, command_of


class Listed:
    """A list with the methods that commands on lists use."""

    title = "Things"
    own_orders = ("flagged first",)

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def columns(self) -> tuple[str, ...]:
        return ("name", "reward")

    def sort_by(self, column_name: str, descending: bool | None = None) -> None:
        self.done.append(("sort", column_name, descending))

    def set_filter(self, text: str) -> None:
        self.done.append(("filter", text))

    def action_columns(self) -> None:
        self.done.append(("columns",))

    def switch_column(self, name: str) -> None:
        self.done.append(("switch", name))


def here(**fields: Any) -> Here:
    changes = {name: fields.pop(name) for name in ("refused", "refused_attempt", "pane") if name in fields}
    for name in ("problem_with", "present"):
        if name in fields:
            changes[name] = fields.pop(name)
    return Here(view=fields.pop("view", None) or view(**fields), now=NOW, **changes)


def done(line: str, **fields: Any) -> list[Any]:
    """What a line asks of the application."""
    host = MagicMock()
    act_of_line(line, here(**fields))(host)
    return host.mock_calls


def error(line: str, **fields: Any) -> str:
    with pytest.raises(TypedError) as found:
        act_of_line(line, here(**fields))
    return str(found.value)


def completed(line: str, **fields: Any) -> list[str]:
    found = command_of(line)
    assert found is not None
    command, text = found
    return [completion.text for completion in command.complete(text, here(**fields))]


STOPPED = (service("r0", "replica"), service("r1", "replica", "stopped"), service("trainer", "trainer"))


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("restart proxy", call.commands.act_on("restart", ["proxy"])),
        ("  restart   r0  r1 r0 ", call.commands.act_on("restart", ["r0", "r1"])),
        ("stop TRAINER", call.commands.act_on("stop", ["trainer"])),
        ("remove r1", call.commands.act_on("remove", ["r1"])),
        ("scale 4", call.commands.scale(to=4)),
        ("scale +1", call.commands.scale(delta=1)),
        ("scale -1", call.commands.scale(delta=-1)),
        ("log r0", call.navigation.open_log("r0")),
        ("service proxy", call.navigation.open_service("proxy")),
        ("theme light", call.navigation.use_theme("light")),
        ("set ui.theme=dark", call.navigation.use_theme("dark")),
        ("set ui.bell = off", call.navigation.use_setting("bell", "off")),
        ("set run.replicas=3", call.commands.scale(to=3)),
        ("set training.total_steps=40", call.next_attempt.offer({"training.total_steps": "40"})),
        ("set model.tool_parser=hermes", call.next_attempt.offer({"model.tool_parser": "hermes"})),
        ("set supervise.restart_base=2", call.next_attempt.offer({"supervise.restart_base": "2"})),
        ("goto 14:03", call.navigation.open_log_time("14:03")),
        ("goto 5m", call.navigation.open_log_time("5m")),
        ("goto 2026-11-20 12:30", call.navigation.open_log_time("2026-11-20 12:30")),
        ("goto 120", call.navigation.open_log_line(120)),
        ("goto step 7", call.navigation.open_step(7)),
        ("goto trial-003", call.navigation.open_trial("trials/step_0007/trial-003")),
        ("goto trials/step_0007/trial-003", call.navigation.open_trial("trials/step_0007/trial-003")),
        ("quit", call.leave()),
        ("help", call.navigation.action_help()),
    ],
)
def test_a_line_does_what_it_says(line: str, asked: Any) -> None:
    assert done(line) == [asked]


def test_start_and_gpu() -> None:
    assert done("start r1", services=STOPPED) == [call.commands.act_on("start", ["r1"])]
    assert done("gpu 1", gpus=(gpu(0), gpu(1))) == [call.navigation.open_gpu("GPU-00000001")]
    assert completed("gpu ", gpus=(gpu(0), gpu(1))) == ["0", "1"]
    assert "no GPU" in error("gpu 0")
    assert error("gpu 7", gpus=(gpu(0),)) == "gpu: found '7', expected the number of a GPU: 0"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("restart", ("nothing found", "the name of a service: r0, r1, proxy or trainer")),
        ("restart prox", ("found 'prox'", "expected the name of a service: r0", "did you mean proxy?")),
        ("stop env:litellm", ("found 'env:litellm'", "expected")),
        ("start r0", ("cannot start r0: it is ready",)),
        ("remove trainer", ("cannot remove trainer: it is not a replica",)),
        ("scale", ("nothing found", "a number of replicas (4) or a difference (+1, -1)")),
        ("scale many", ("found 'many'", "a number of replicas")),
        ("scale 0", ("leaves 0 replicas of 2", "at least 1")),
        ("scale -2", ("leaves 0 replicas of 2",)),
        ("scale 2", ("there are 2 replicas already",)),
        ("scale +0", ("there are 2 replicas already",)),
        ("set", ("nothing found", "KEY=VALUE")),
        (
            "set training.total_step=4",
            ("training.total_step: unknown key", "did you mean training.total_steps?"),
        ),
        ("set training.total_step", ("unknown key", "did you mean training.total_steps?")),
        ("set training.total_steps", ("no value found for training.total_steps", "a whole number")),
        ("set training.total_steps=", ("no value found for training.total_steps", "a whole number")),
        ("set training.total_steps=many", ("found 'many'", "expected a whole number")),
        ("set run.topology=verl", ("cannot be changed in an existing run", "which services")),
        ("set run.topology=nonsense", ("cannot be changed in an existing run",)),
        ("set ui.theme=drak", ("found 'drak'", "did you mean dark?")),
        ("theme", ("nothing found", "auto, dark")),
        ("theme lihgt", ("did you mean light?",)),
        ("goto", ("nothing found", "a time (14:03, 5m ago), step N")),
        ("goto 25:99", ("'25:99' is not a time of day",)),
        ("goto step", ("nothing found", "from 1 to 7")),
        ("goto step 8", ("found '8'", "from 1 to 7")),
        ("goto step 0", ("found '0'", "from 1 to 7")),
        ("goto trial 0", ("found '0'", "the number of a row, from 1")),
        ("goto 0", ("found '0'", "the number of a line, from 1")),
        ("quit now", ("found 'now'", "nothing after the name")),
        ("sacle 4", ("found 'sacle'", "did you mean scale?")),
        ("log nothing", ("found 'nothing'", "expected the name of a service")),
    ],
)
def test_a_wrong_line_says_what_was_found_and_what_is_expected(line: str, parts: tuple[str, ...]) -> None:
    for part in parts:
        assert part in error(line), error(line)


@pytest.mark.parametrize(
    "line", ["restart proxy", "start r1", "stop r0", "remove r0", "scale 3", "set run.replicas=3"]
)
def test_a_change_of_the_run_is_refused_with_the_reason(line: str) -> None:
    assert error(line, refused="this interface is read-only").endswith(": this interface is read-only")


def test_what_is_only_shown_is_never_refused() -> None:
    refused = {"refused": "read-only", "refused_attempt": "read-only"}
    for line in ("log r0", "goto 5m", "theme dark", "set ui.mouse=true", "help"):
        assert done(line, **refused), line
    assert error("set training.total_steps=40", **refused) == "set: read-only"
    # An ended run takes no command, but it can be resumed.
    ended = here(refused="this run has ended")
    assert act_of_line("set training.total_steps=40", ended)
    over = View("ended", snapshot=snapshot())
    assert done("set run.replicas=3", view=over, refused="this run has ended") == [
        call.next_attempt.offer({"run.replicas": "3"})
    ]


def test_values_are_checked_with_the_other_keys_of_the_run() -> None:
    asked: list[Any] = []

    def problem_with(values: Any) -> str:
        asked.append(values)
        return "vllm.gen_tp: there are 2 GPUs"

    assert error("set vllm.gen_tp=4", problem_with=problem_with) == "set: vllm.gen_tp: there are 2 GPUs"
    assert asked == [{"vllm.gen_tp": "4"}]


def test_replicas_of_verl_are_managed_by_verl() -> None:
    actor = replica_of({"name": "vllm_server_0_0", "state": "ready", "address": None, "listed": True})
    fields: dict[str, Any] = {"replicas": ReplicaSet(1, 1, 1, (actor,))}
    assert "managed by verl; restart the trainer" in error("stop vllm_server_0_0", **fields)
    assert done("start vllm_server_0_0", **fields) == [call.commands.act_on("start", ["vllm_server_0_0"])]
    assert "vllm_server_0_0" in completed("service ", **fields)


def test_completions_come_from_the_view() -> None:
    assert completed("restart ") == ["r0", "r1", "proxy", "trainer"]
    assert completed("restart pr") == ["proxy"]
    assert completed("restart r0 ") == ["r0 r1", "r0 proxy", "r0 trainer"], "not the one that is named"
    assert completed("start ") == [] and completed("start ", services=STOPPED) == ["r1"]
    assert completed("stop ", services=STOPPED) == ["r0", "trainer"]
    assert completed("remove ") == ["r0", "r1"]
    assert completed("scale ")[:3] == ["+1", "-1", "3"]
    assert completed("goto ")[:2] == ["step 7", "step 6"] and "trial-000" in completed("goto ")
    assert completed("goto step 6") == ["step 6"]
    assert completed("log ") == ["r0", "r1", "proxy", "trainer"]
    assert completed("theme ") == ["auto", "dark", "light", "colour-blind", "ansi"]
    one = TrialsStatus(newest=(trial(3),), steps=(StepTrials(3, 4, 4, 0, 0.1),))
    assert "step 3" in completed("goto ", trials=one)


def test_keys_and_values_of_set_are_completed() -> None:
    present = {"training.total_steps": "20", "ui.bell": "true"}
    keys = completed("set ", present=lambda: present)
    assert "training.total_steps=" in keys and "run.topology=" not in keys, "a key that can never be changed"
    assert completed("set training.total_st") == ["training.total_steps="]
    assert "training.total_steps=" in completed("set total_st"), "the section need not be known"
    assert completed("set training.total_steps=", present=lambda: present)[0] == "training.total_steps=20"
    assert completed("set ui.bell=", present=lambda: present) == ["ui.bell=true", "ui.bell=false"]
    assert completed("set ui.theme=li") == ["ui.theme=light"]
    assert "trainer.restart=never" in completed("set trainer.restart=")
    found = command_of("set training.total_steps")
    assert found is not None
    abouts = [c.about for c in found[0].complete(found[1], here(present=lambda: present))]
    assert abouts == ["now 20; restart of trainer"]


def test_commands_on_the_focused_list() -> None:
    pane = Listed()
    for line in (
        "filter one two",
        "filter",
        "sort reward",
        "sort reward desc",
        "sort NAME asc",
        "sort flagged first",
    ):
        done(line, pane=pane)
    done("columns", pane=pane)
    done("columns reward name", pane=pane)
    assert pane.done == [
        ("filter", "one two"),
        ("filter", ""),
        ("sort", "reward", None),
        ("sort", "reward", True),
        ("sort", "name", False),
        ("sort", "flagged first", None),
        ("columns",),
        ("switch", "reward"),
        ("switch", "name"),
    ]
    assert "did you mean reward?" in error("sort rewrad", pane=pane)
    assert "found 'down', expected asc or desc" in error("sort reward down", pane=pane)
    assert "expected the name of a column: name or reward" in error("columns nme", pane=pane)
    assert completed("sort ", pane=pane) == ["name", "reward", "flagged first"]
    assert completed("sort reward ", pane=pane) == ["reward asc", "reward desc"]
    assert completed("columns name ", pane=pane) == ["name reward"]
    for line in ("filter x", "sort reward", "columns"):
        assert "go to a list first" in error(line, pane=object())
        assert "the pane Logs cannot be" in error(line, pane=MagicMock(spec=["title"], title="Logs"))


def test_the_first_word_must_be_a_whole_name_of_a_command() -> None:
    assert command_of("scale") is None and command_of("scal 4") is None and command_of("") is None
    found = command_of(" scale  4")
    assert found is not None and (found[0].name, found[1]) == ("scale", "4")
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    for command in COMMANDS:
        assert command.help[0].isupper() and not command.help.endswith("."), command


@example("set", "=")
@example("set", "..=1")
@given(st.sampled_from([command.name for command in COMMANDS]), st.text(max_size=30))
def test_any_line_is_understood_or_refused_with_a_reason(name: str, text: str) -> None:
    facts = here(pane=Listed())
    try:
        act_of_line(f"{name} {text}", facts)
    except TypedError as error:
        assert str(error).isprintable() or not text.isprintable()
    found = command_of(f"{name} {text}")
    assert found is not None
    list(found[0].complete(found[1], facts))
