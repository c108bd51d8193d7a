"""The table of commands: what each takes and does, the answers to wrong arguments, and the event that says who
asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liverl.control import commands as arguments
from liverl.control.commands import ServiceCommand, parse_arguments
from liverl.control.messages import CommandError
from liverl.daemon.commands import Commands
from liverl.external.repair import Repair
from liverl.supervise.services import state_machine
from liverl.supervise.services.state_machine import MachineState

# What scripts send: the name of each command, and its arguments.
WIRE = {
    "inspect": ("service",),
    "inspect_gpu": ("gpu",),
    "reconfigure": ("values",),
    "restart": ("service",),
    "save_checkpoint": (),
    "scale": ("to", "delta", "remove", "force"),
    "start_service": ("service",),
    "stop": ("now",),
    "stop_service": ("service",),
}


class Asked:
    """Commands over parts that only note what they are asked for. ``adopted``: names of a launch script's services;
    ``actors``: of verl's replicas."""

    def __init__(
        self,
        adopted: tuple[str, ...] | None = None,
        actors: tuple[str, ...] = (),
        carrier: str = "proxy",
    ) -> None:
        self.done: list[Any] = []
        self.said: list[str] = []
        feed = self.feed
        machine = MachineState(generation=4)
        self.slot = SimpleNamespace(
            name="proxy",
            incoming=None,
            restarting=None,
            being_restarted=False,
            state="stopped",
            spec=SimpleNamespace(owner="ours", drain=()),
            current=SimpleNamespace(feed=feed, machine=machine, process=None, busy=False),
        )
        self.supervisor = supervisor = SimpleNamespace(
            say=lambda _kind, text, **_data: self.said.append(text),
            records=SimpleNamespace(journalled=self.note("journalled")),
            end_causes=SimpleNamespace(of=self.why),
            slot=self.find,
            until=self.until,
            kick=lambda: None,
            stopping=False,
            plan=SimpleNamespace(carrier=carrier),
        )
        # simulated: reading logs is EndCauses' work
        source = SimpleNamespace(endpoints=lambda: [SimpleNamespace(name=name) for name in actors])
        repair = SimpleNamespace(
            knows=lambda name: name in (adopted or ()), add=self.note("add"), run=self.note("repair")
        )
        self.commands = Commands(
            cast(Any, supervisor),
            cast(Any, SimpleNamespace(scale=self.note("scale"))),
            cast(Any, None),
            lambda **how: self.done.append(("end", how)),
            cast(Any, source),
            cast(Any, SimpleNamespace(change=self.note("change"))),
            cast(Any, SimpleNamespace(save_now=self.note("save"))),
            cast(Any, repair if adopted is not None else None),
        )

    async def why(self, instance: Any) -> Any:
        return SimpleNamespace(text=instance.machine.why)

    def note(self, what: str) -> Any:
        async def noted(*args: Any, force: bool = False) -> dict[str, Any]:
            self.done.append((what, *args, *(["force"] if force else [])))
            return {"did": what}

        return noted

    def find(self, name: str) -> Any:
        if name != "proxy":
            raise CommandError("unknown_service", f"no service {name!r}")
        return self.slot

    def feed(self, event: state_machine.Input) -> None:
        self.done.append(event)
        stops = isinstance(event, state_machine.Stop)
        self.slot.state = "stopped" if stops else "ready"
        generation = self.slot.current.machine.generation if stops else 5
        self.slot.current.machine = MachineState(
            state=self.slot.state, generation=generation, wanted=not stops
        )

    async def until(self, condition: Any) -> None:
        assert condition()

    def run(self, name: str, **args: Any) -> dict[str, Any]:
        return asyncio.run(self.commands.run(name, args, "cli pid 7"))

    def refused(self, name: str, **args: Any) -> CommandError:
        with pytest.raises(CommandError) as caught:
            self.run(name, **args)
        return caught.value


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"delta": 1}, "scale +1"),
        ({"delta": -2}, "scale -2"),
        ({"to": 4}, "scale 4"),
        ({"remove": "r1"}, "remove r1"),
    ],
)
def test_a_change_of_the_replicas_is_told_as_it_was_asked(args: dict[str, Any], words: str) -> None:
    asked = Asked()
    asked.run("scale", **args)
    assert asked.said == [f"cli pid 7: {words}"]


def test_a_checkpoint_is_asked_for_with_the_name_of_who_asks() -> None:
    asked = Asked()
    assert asked.run("save_checkpoint") == {"text": {"did": "save"}} and asked.done == [("save", "cli pid 7")]


def test_the_table_holds_what_scripts_send() -> None:
    table = Asked().commands.table
    fields = {
        name: tuple(field.name for field in msgspec.structs.fields(entry.arguments))
        for name, entry in table.items()
    }
    assert fields == WIRE


@pytest.mark.parametrize(
    ("name", "args", "done", "said"),
    [
        ("stop", {}, [("end", {"now": False, "who": "cli pid 7"}), ("journalled",)], []),
        ("stop", {"now": True}, [("end", {"now": True, "who": "cli pid 7"}), ("journalled",)], []),
        ("scale", {"to": 3}, [("scale", 3, None, None)], ["scale 3"]),
        ("scale", {"delta": -1, "to": None}, [("scale", None, -1, None)], ["scale -1"]),
        ("scale", {"remove": "r1"}, [("scale", None, None, "r1")], ["remove r1"]),
        ("scale", {"to": 9, "force": True}, [("scale", 9, None, None, "force")], ["scale 9"]),
        ("restart", {"service": "proxy"}, [state_machine.Restart()], ["restart proxy"]),
        ("stop_service", {"service": "proxy"}, [state_machine.Stop()], ["stop proxy"]),
        ("start_service", {"service": "proxy"}, [state_machine.Start()], ["start proxy"]),
    ],
)
def test_each_command_does_its_own_thing(
    name: str, args: dict[str, Any], done: list[Any], said: list[str]
) -> None:
    asked = Asked()
    asked.run(name, **args)
    assert (asked.done, asked.said) == (done, [f"cli pid 7: {text}" for text in said])


def test_what_a_command_on_a_service_answers() -> None:
    assert Asked().run("stop") == {"text": "stopping"}
    assert Asked().run("stop_service", service="proxy") == {"service": "proxy", "state": "stopped"}
    assert Asked().run("start_service", service="proxy") == {"service": "proxy", "generation": 5}
    restarted = {"service": "proxy", "generation": 5, "pid": None}
    assert Asked().run("restart", service="proxy") == restarted
    for name in ("restart", "stop_service", "start_service"):
        asked = Asked()
        assert asked.refused(name, service="proxi").code == "unknown_service"
        assert (asked.done, asked.said) == ([], [])


@pytest.mark.parametrize("service", ["proxy", "sessions"])
@pytest.mark.parametrize("name", ["restart", "stop_service", "start_service"])
def test_sessions_in_verls_workers_are_restarted_with_the_trainer(name: str, service: str) -> None:
    asked = Asked(carrier="workers")
    error = asked.refused(name, service=service)
    words = "the sessions run inside verl's agent-loop workers; restart the trainer to restart them"
    assert (error.code, str(error)) == ("foreign", f"this run has no service {service}: {words}")
    assert (asked.done, asked.said) == ([], [])
    assert asked.refused(name, service="proxi").code == "unknown_service"


def test_a_successor_that_is_being_started_is_stopped_too() -> None:
    asked = Asked()
    asked.slot.incoming = SimpleNamespace(feed=lambda event: asked.done.append(("incoming", event)))
    asked.run("stop_service", service="proxy")
    assert asked.done == [("incoming", state_machine.Stop()), state_machine.Stop()]


def test_what_runs_already_is_not_started() -> None:
    asked = Asked()
    asked.slot.state = "starting"
    answer = asked.run("start_service", service="proxy")
    assert answer == {"service": "proxy", "generation": 4, "text": "proxy is already starting"}
    assert asked.done == []


def test_a_run_that_is_stopping_starts_nothing() -> None:
    for name in ("restart", "start_service"):
        asked = Asked()
        asked.supervisor.stopping = True
        assert asked.refused(name, service="proxy").code == "stopping" and asked.done == []


def test_what_this_run_did_not_start_is_not_restarted() -> None:
    asked = Asked()
    asked.slot.spec.owner = "foreign"
    assert asked.refused("restart", service="proxy").code == "foreign" and asked.done == []


@pytest.mark.parametrize("state", ["ready", "degraded"])
@pytest.mark.parametrize("serves", [True, False])
def test_a_service_that_drains_is_swapped(state: Any, serves: bool) -> None:
    asked = Asked()
    slot, old = asked.slot, asked.slot.current
    slot.spec.drain = ("drain",)
    slot.state, old.machine = state, MachineState(state, 4)
    machine = MachineState("ready" if serves else "failed", 5, why="exit 3")
    new = SimpleNamespace(machine=machine, process=SimpleNamespace(pid=77) if serves else None, hub=None)

    def begin_swap(_: Any) -> Any:
        slot.incoming = new
        return new

    async def until(condition: Any) -> None:
        slot.current, slot.incoming = new if serves else old, None
        assert condition()

    slot.begin_swap, asked.supervisor.until = begin_swap, until
    if serves:
        assert asked.run("restart", service="proxy") == {"service": "proxy", "generation": 5, "pid": 77}
    else:
        error = asked.refused("restart", service="proxy")
        assert error.code == "not_started"
        assert str(error) == "the new proxy did not start: exit 3; the previous process is still serving"
    assert asked.said == ["cli pid 7: restart proxy", "starting a new generation beside generation 4"]
    assert asked.done == [], "the process that serves is told nothing before the next one serves"
    slot.current, slot.incoming = old, new
    if serves:  # one that an earlier backend began is waited for
        assert asked.run("restart", service="proxy")["generation"] == 5
    else:
        assert asked.refused("restart", service="proxy").code == "not_started"


@pytest.mark.parametrize("name", ["restart", "start_service"])
def test_a_service_that_does_not_come_up_is_told(name: str) -> None:
    asked = Asked()

    def feed(_: Any) -> None:
        asked.slot.state = "failed"
        asked.slot.current.machine = MachineState("failed", 5, why="exit 3")

    asked.slot.current.feed = feed
    error = asked.refused(name, service="proxy")
    assert error.code == "not_started" and str(error).endswith(": exit 3")


# --- wrong arguments --------------------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str, str | None]] = [
    (
        "restart",
        {"servce": "proxy"},
        "restart: unknown argument 'servce'; arguments: service",
        "service",
    ),
    ("stop", {"force": True}, "stop: unknown argument 'force'; arguments: now", None),
    ("scale", {"dleta": 1}, "scale: unknown argument 'dleta'; arguments: to, delta, remove, force", "delta"),
    ("restart", {}, "restart: argument 'service' is missing; expected a string", None),
    ("inspect", {}, "inspect: argument 'service' is missing; expected a string", None),
    (
        "stop_service",
        {"service": ["a"]},
        "stop_service: argument 'service': found [\"a\"], expected a string",
        None,
    ),
    (
        "start_service",
        {"service": None},
        "start_service: argument 'service': found null, expected a string",
        None,
    ),
    ("stop", {"now": "yes"}, "stop: argument 'now': found \"yes\", expected true or false", None),
    ("stop", {"now": 1}, "stop: argument 'now': found 1, expected true or false", None),
    ("scale", {"to": "3"}, "scale: argument 'to': found \"3\", expected an integer or null", None),
    ("scale", {"delta": 1.5}, "scale: argument 'delta': found 1.5, expected an integer or null", None),
    ("scale", {"delta": True}, "scale: argument 'delta': found true, expected an integer or null", None),
    (
        "restart",
        {"service": ["x" * 200]},
        f"restart: argument 'service': found [\"{'x' * 78}, expected a string",
        None,
    ),
    ("scale", {"to": 2, "remove": 1}, "scale: argument 'remove': found 1, expected a string or null", None),
    (
        "reconfigure",
        {"values": "a=1"},
        "reconfigure: argument 'values': found \"a=1\", expected an object of strings",
        None,
    ),
    (
        "reconfigure",
        {"values": {"a": 1}},
        "reconfigure: argument 'values': found {\"a\": 1}, expected an object of strings",
        None,
    ),
]


@pytest.mark.parametrize(("name", "args", "text", "meant"), WRONG)
def test_a_wrong_argument_is_answered_and_changes_nothing(
    name: str, args: dict[str, Any], text: str, meant: str | None
) -> None:
    asked = Asked()
    error = asked.refused(name, **args)
    assert (str(error), error.code, error.did_you_mean) == (text, "bad_args", meant)
    assert error.exit_code == 2
    assert (asked.done, asked.said) == ([], [])


@pytest.mark.parametrize(
    ("name", "meant"), [("restrat", "restart"), ("Stop", "stop"), ("", None), ("x" * 999, None)]
)
def test_an_unknown_command_is_answered_with_those_that_there_are(name: str, meant: str | None) -> None:
    error = Asked().refused(name)
    assert (error.code, error.exit_code, error.did_you_mean) == ("unknown_command", 2, meant)
    assert f"commands: {', '.join(WIRE)}" in str(error) and len(str(error)) < 240


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["to", "delta", "remove", "now", "service"]) | st.text()


@given(st.sampled_from(sorted(WIRE)), st.dictionaries(NAMES, JSON, max_size=3))
def test_any_arguments_are_taken_or_refused_in_words(name: str, args: dict[str, Any]) -> None:
    kind = Asked().commands.table[name].arguments
    try:
        taken = parse_arguments(name, args, kind)
    except CommandError as error:
        assert error.code == "bad_args" and str(error).startswith(f"{name}: ") and len(str(error)) < 400
    else:
        assert msgspec.to_builtins(taken).items() >= args.items()


# --- what is not ours -------------------------------------------------------------------------------------


def test_what_verl_keeps_is_refused() -> None:
    asked = Asked(actors=("vllm_server_0_0",))
    for name in ("restart", "stop_service", "start_service"):
        error = asked.refused(name, service="vllm_server_0_0")
        assert error.code == "foreign" and "vllm_server_0_0" in str(error)
    assert (asked.done, asked.said) == ([], [])


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("restart", arguments.Restart, ["cli pid 7: restart ray"]),
        ("stop_service", arguments.StopService, ["cli pid 7: stop ray"]),
        ("start_service", arguments.StartService, ["cli pid 7: start ray"]),
        ("inspect", arguments.Inspect, []),
    ],
)
def test_what_a_launch_script_started_goes_to_its_repair(name: str, kind: Any, said: list[str]) -> None:
    asked = Asked(adopted=("ray",))
    assert asked.run(name, service="ray") == {"did": "repair"}
    assert (asked.done, asked.said) == ([("repair", kind("ray"))], said)


def test_a_launch_script_s_own_service_is_one_of_ours() -> None:
    asked = Asked(adopted=("ray",))
    asked.run("restart", service="proxy")
    assert asked.done == [state_machine.Restart()]


def test_a_change_of_the_configuration_is_passed_on_unless_a_script_started_the_services() -> None:
    asked, values = Asked(), {"model.tool_parser": "hermes", "vllm.x": "1"}
    assert asked.run("reconfigure", values=values) == {"did": "change"}
    assert asked.done == [("change", values, "cli pid 7")]
    assert asked.said == ["cli pid 7: change model.tool_parser, vllm.x"]
    adopted = Asked(adopted=())
    assert adopted.refused("reconfigure", values=values).code == "next_attempt" and adopted.done == []
    mute = {"diagnosis.mute": "[rewards_equal]"}
    assert adopted.run("reconfigure", values=mute) == {"did": "change"}, "no service reads it"
    assert adopted.refused("reconfigure", values=mute | values).code == "next_attempt"


def test_replicas_of_a_launch_script_are_listed_by_its_repair() -> None:
    asked = Asked(adopted=())
    assert asked.run("scale", delta=2) == {"did": "add"}
    assert asked.done == [("add", None, 2, None)]


class Repaired(Repair):
    """Which of the two repairs a command leads to."""

    def __init__(self) -> None:
        adopted = SimpleNamespace(proxy=SimpleNamespace(launch=None), endpoints=list)
        super().__init__(cast(Any, None), cast(Any, adopted))

    async def restart(self) -> dict[str, Any]:
        return {"did": "restart"}

    async def add(
        self,
        to: int | None = None,
        delta: int | None = None,
        remove: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        return {"did": f"add {name}"}


@pytest.mark.parametrize(
    ("command", "did"),
    [
        (arguments.Restart("proxy"), "restart"),
        (arguments.StartService("r0"), "add r0"),
        (arguments.Restart("ray"), "foreign"),
        (arguments.StopService("proxy"), "foreign"),
        (arguments.StartService("proxy"), "foreign"),
        (arguments.StartService("ray"), "foreign"),
        (arguments.Restart("r0"), "verl"),
        (arguments.StopService("r0"), "verl"),
    ],
)
def test_only_two_repairs_of_a_launch_are_possible(command: ServiceCommand, did: str) -> None:
    if did not in ("foreign", "verl"):
        assert asyncio.run(Repaired().run(command)) == {"did": did}
        return
    with pytest.raises(CommandError) as caught:
        asyncio.run(Repaired().run(command))
    assert caught.value.code == "foreign"
    assert ("is managed by the launch script" in str(caught.value)) == (did == "foreign")


def test_what_is_known_of_an_adopted_service_can_be_inspected() -> None:
    told = asyncio.run(Repaired().run(arguments.Inspect("proxy")))
    assert (told["name"], told["kind"]) == ("proxy", "proxy")


def test_a_stop_that_another_command_overtook_says_so() -> None:
    asked = Asked()

    async def until(condition: Any) -> None:
        asked.slot.state = "starting"
        asked.slot.current.machine = MachineState("starting", 5)
        assert condition()

    asked.supervisor.until = until
    answer = asked.run("stop_service", service="proxy")
    assert answer["state"] == "starting"
    assert answer["text"] == "proxy was stopped, but another command has started it again"
