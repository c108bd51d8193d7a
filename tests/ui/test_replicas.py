"""The replicas pane: serving ones, those on their way, missing ones, and the services beside them."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from kit.pilots import press, until
from kit.screens import NOW, RecordingApp, gpu, in_workers, replica, service, settle, stop_clocks, view

from liverl.model import NodeStatus, ProxyStatus, ReplicaSet, ReplicaStatus, SessionsStatus, Symptom
from liverl_tui.data.view import View
from liverl_tui.text.words import GLYPH, state_word
from liverl_tui.widgets.dashboard.replicas import ReplicasPane
from liverl_tui.widgets.log.frame import ALL
from liverl_tui.widgets.log.pane import LogsPane


class App(RecordingApp):
    @property
    def pane(self) -> ReplicasPane:
        return self.screen.query_one(ReplicasPane)

    def line(self, start: str) -> str:
        found = [row.text.rstrip() for row in self.pane.rows if row.text.startswith(start + " ")]
        assert len(found) == 1, self.pane.text
        return found[0]


def shown(*items: ReplicaStatus, expected: int | None = None, **fields: Any) -> View:
    ready = sum(r.state in ("ready", "degraded") for r in items)
    listed = sum(r.listed for r in items)
    return view(
        replicas=ReplicaSet(len(items) if expected is None else expected, ready, listed, items), **fields
    )


async def test_what_a_serving_replica_tells() -> None:
    one = replica(0, gpus=("GPU-00000003", "GPU-00000001"), restarts=2, kind="hybrid")
    app = App(shown(one, replica(1, policy_version=6), gpus=tuple(gpu(i) for i in range(4))))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        assert "2 of 2 ready, 2 in the proxy" in app.pane.text
        head = app.pane.rows[1].text
        names = (
            "replica state proxy run/wait tok/s s/answer KV policy prefix hits restarts up gpu address kind"
        )
        assert head.split() == names.split()
        assert re.fullmatch(
            r"r0 +● ready +● in +3/0 +1.24k +- +31% +v7 +72% +2 +1m +1,3 +127.0.0.1:8000 +hybrid",
            app.line("r0"),
        )
        row = next(row for row in app.pane.rows if row.text.startswith("r1"))
        assert ("warn", "v6") in [(style, text.strip()) for text, style in row.spans]  # behind the trainer


async def test_the_most_important_columns_fit_on_a_small_terminal() -> None:
    app = App(shown(replica(0), replica(1)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert re.fullmatch(r"r0 +● ready +● in +3/0 +1.24k +- +31% +v7 +72% +0 +1m", app.line("r0"))
        names = "replica state proxy run/wait tok/s s/ans KV policy prefix rst up"
        assert app.pane.rows[1].text.split() == names.split()
        for name in ("proxy", "trainer"):
            assert "● ready" in app.line(name)
        await pilot.resize_terminal(40, 24)
        await settle(pilot)
        assert re.match(r"r0 +● ready", app.line("r0"))


async def test_the_time_of_answers_warns_of_a_slow_replica() -> None:
    slow = Symptom("replica_slow:r1", "warning", "r1 answers 13 times slower", "", "restart r1")
    items = (replica(0, seconds_per_answer=0.15), replica(1, seconds_per_answer=2.004))
    app = App(shown(*items, symptoms=(slow,)))
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        for name, span in (("r0", ("text", "0.15")), ("r1", ("warn", "2.00"))):
            row = next(row for row in app.pane.rows if row.text.startswith(name))
            assert span in [(style, text.strip()) for text, style in row.spans]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"listed": False}, "▲ not listed in the proxy"),
        ({"listed": False, "policy_version": 6}, "◐ waiting for weights v7"),
        ({"listed": False, "leaving": True}, "◑ draining"),
        ({"idle_for": 74.0}, "▲ loaded but idle 1m14s"),
    ],
)
async def test_what_keeps_a_ready_replica_from_its_work(fields: dict[str, Any], text: str) -> None:
    app = App(shown(replica(0), replica(1, **fields)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert text in app.line("r1")
        assert ("○ out" in app.line("r1")) == ("listed" in fields)


async def test_the_state_is_as_wide_as_its_words() -> None:
    app = App(shown(replica(0), replica(1)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        narrow = app.pane.rows[1].text.index("proxy")
        app.take(shown(replica(0), replica(1, idle_for=599.0)))
        wide = app.pane.rows[1].text.index("proxy")
        assert wide > narrow
        assert "▲ loaded but idle 9m59s" in app.line("r1")
        app.take(shown(replica(0), replica(1, idle_for=600.0)))
        assert "▲ loaded but idle 10m00s" in app.line("r1")
        assert app.pane.rows[1].text.index("proxy") == wide, "a digit more moves no column"
        app.take(shown(replica(0), replica(1), services=(service("proxy", "proxy", incoming_pid=9),)))
        assert app.pane.rows[1].text.index("proxy") == narrow, "another service's words are not in the way"
        assert "● ready, being replaced gen 1" in app.line("proxy")


async def test_services_that_are_simply_ready_cost_no_replica_its_row() -> None:
    services = (*(service(f"r{i}", "replica") for i in range(8)), service("proxy", "proxy"))
    app = App(shown(*(replica(i) for i in range(8)), services=services))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app.pane.rows[-1].text.startswith("r"), app.pane.text
        app.take(
            shown(
                *(replica(i) for i in range(8)),
                services=(*services[:-1], service("proxy", "proxy", "failed")),
            )
        )
        assert "✖ proxy failed" in app.pane.rows[-1].text


async def test_without_a_proxy_nobody_is_missing_from_its_list() -> None:
    app = App(shown(replica(0, listed=False), services=(service("r0", "replica"),), proxy=ProxyStatus()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "● ready" in app.line("r0")
        assert "1 of 1 ready ─" in app.pane.text


async def test_a_replica_that_the_proxy_has_put_aside() -> None:
    proxy = ProxyStatus(address="http://127.0.0.1:8002", cooled_down=("http://127.0.0.1:8001/v1",))
    app = App(shown(replica(0), replica(1), proxy=proxy))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "▲ cool" in app.line("r1")
        assert "● in" in app.line("r0")
        assert "1 replica in cooldown" in app.line("proxy")


async def test_replicas_on_their_way_show_stage_time_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clocks(monkeypatch)
    items = (
        replica(0, "starting", stage="CUDA graphs 3/7", progress=3 / 7, since=NOW - 72),
        replica(1, "backing_off", restarts=1),
    )
    services = (
        service("r0", "replica", "starting", why="connection refused"),
        service("r1", "replica", "backing_off", deadline=NOW + 30, why="exit 1: out\x1b[2J of\nmemory"),
        service("proxy", "proxy", "waiting", why="waits for r0"),
    )
    app = App(shown(*items, expected=4, services=services, state="starting"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert re.search(r"◐ CUDA graphs 3/7 43% 1m12s +━+╸?─+ connection refused", app.line("r0"))
        assert re.search(r"↻ backing off, retry in 30s +1 restart exit 1: out of \| memory", app.line("r1"))
        assert "◌ missing" in app.line("-")
        assert "2 of 4 replicas do not exist yet" in app.line("-")
        assert "◌ waiting" in app.line("proxy")
        assert "waits for r0" in app.line("proxy")
        title = app.pane.rows[0]
        assert "0 of 4 ready, 0 in the proxy" in title.text
        assert any(style == "warn" for _, style in title.spans)


async def test_every_state_is_readable_on_a_small_terminal() -> None:
    for states in (tuple(GLYPH)[:5], tuple(GLYPH)[5:]):
        services = tuple(service(f"s{i}", "ray", state, deadline=NOW + 9) for i, state in enumerate(states))
        app = App(view(services=services, replicas=ReplicaSet()))
        async with app.run_test(size=(80, 24)) as pilot:
            await settle(pilot)
            for i, state in enumerate(states):
                assert f"{GLYPH[state]} {state_word(state)}" in app.line(f"s{i}")


async def test_other_services_stay_visible_below_many_replicas() -> None:
    services = (
        *(service(f"r{i}", "replica") for i in range(64)),
        service("proxy", "proxy", retiring_pids=(7,)),
        service("trainer", "trainer", "stopping", deadline=NOW + 9),
    )
    app = App(shown(*(replica(i) for i in range(64)), services=services))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        last = app.pane.rows[-1].text
        assert "● proxy ready, 1 process draining" in last
        assert re.search(r"◑ trainer stopping, forced in \ds", last)
        assert "of 66" in app.pane.rows[0].text
        await press(pilot, "2", "end", "enter")
        assert app.opened == ["trainer"]
        await press(pilot, "home")
        await pilot.click(ReplicasPane, offset=(3, app.pane.size.height - 1))
        await settle(pilot)
        assert app.pane.cursor == "proxy"


async def test_an_environment_has_a_row_while_it_is_built_or_broken() -> None:
    broken = service("env:vllm", "environment", "failed", why="no such index", pid=None)
    app = App(
        view(services=(service("env:litellm", "environment"), broken), replicas=ReplicaSet(2, 0, 0, ()))
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "✖ failed" in app.line("env:vllm")
        assert "no such index" in app.line("env:vllm")
        assert "env:litellm" not in app.pane.text


async def test_enter_opens_the_detail_and_not_that_of_a_missing_one() -> None:
    app = App(shown(replica(0), replica(1), expected=3))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "2", "down", "enter")
        assert app.opened == ["r1"]
        await press(pilot, "down", "enter")
        assert app.opened == ["r1"]
        assert [n.message for n in app._notifications] == [
            "▲ the missing replicas do not exist yet; there is nothing to open"
        ]
        await press(pilot, "down", "enter")
        assert app.opened == ["r1", "proxy"]


async def test_problems_come_first_when_asked() -> None:
    app = App(shown(*(replica(i, listed=i != 40) for i in range(50))))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "r40" not in app.pane.text
        await press(pilot, "2", "o", *"problems", "enter")
        assert app.pane.rows[2].text.startswith("r40 ")
        assert "problems first" in app.pane.rows[0].text
        await press(pilot, "o", *"as conf", "enter")
        assert app.pane.rows[2].text.startswith("r0 ")


async def test_the_cursor_stays_on_its_replica() -> None:
    app = App(shown(replica(0), replica(1), replica(2)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "2", "down", "down")
        app.pane.show(shown(replica(1), replica(2)))
        assert app.pane.cursor == "r2"
        app.pane.show(shown(replica(1)))
        assert app.pane.cursor is not None
        app.take(View())
        app.take(view(replicas=ReplicaSet(), services=()))
        assert app.pane.cursor is None
        assert "none in this run" in app.pane.text


async def test_replicas_behind_a_proxy_that_is_down_are_unreachable() -> None:
    down = service("proxy", "proxy", "starting", down_since=NOW - 3, failure="killed by SIGKILL")
    app = App(shown(replica(0), replica(1, "starting"), services=(down,)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert "1 of 2 ready, unreachable: the proxy is down" in app.pane.text
        assert "● up, unreachable" in app.line("r0") and "○ down" in app.line("r0")
        assert "unreachable" not in app.line("r1")
        app.pane.show(shown(replica(0), services=(service("proxy", "proxy"),)))
        await settle(pilot)
        assert "unreachable" not in app.pane.text and "● in" in app.line("r0")


# -- sessions in verl's workers


async def test_the_sessions_in_verls_workers_have_a_row_in_front_of_the_trainer() -> None:
    app = App(View(link="live", snapshot=in_workers()))
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        assert "2 of 2 ready" in app.pane.text and "in the" not in app.pane.rows[0].text
        words = "ready 817 requests 3 failed 16 open, 104 ended 3 being sampled in 2 agent-loop workers"
        assert app.line("sessions").split()[2:] == words.split()
        names = [row.text.split()[0] for row in app.pane.rows]
        assert names[-2:] == ["sessions", "trainer"]
        selected: list[str] = []
        app.pane.post_message = lambda message: selected.append(message.name) or True  # type: ignore
        app.pane.select("sessions")
        assert selected == ["trainer"], "their log is the trainer's"
        del app.pane.post_message
        app.pane.action_select()
        assert app.pane.cursor == "sessions" and app.opened == ["trainer"]
        assert not app.pane.markable("sessions") and app.pane.markable("trainer")
        assert app.pane.item("sessions") is None
        assert "agent-loop workers" in app.pane.words("sessions"), "a filter finds it"
        ended = in_workers(state="done", services=(service("trainer", "trainer", "stopped"),))
        app.take(View(link="ended", snapshot=ended))
        await settle(pilot)
        words = "stopped 817 requests 3 failed 104 ended, 16 cut off in 2 agent-loop workers"
        assert app.line("sessions").split()[2:] == words.split()


async def test_sessions_in_workers_wait_for_these() -> None:
    app = App(View(link="live", snapshot=in_workers(sessions=SessionsStatus())))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert app.line("sessions").endswith("waiting verl's agent-loop workers host them")


JOIN = "liverl-tui join /runs/p/r"


def host(number: int, state: str = "ready", why: str = "", name: str = "") -> NodeStatus:
    """A host of a run on several; ``name``: "-" of one that has not joined."""
    named = "" if name == "-" else name or f"n{number}"
    command = JOIN if state in ("missing", "lost") else ""
    ip = f"10.0.0.{number}" if named else ""
    return NodeStatus(named, ip, "id", state, why, NOW - 12, command)  # type: ignore[arg-type]


async def test_the_hosts_are_one_row_that_unfolds() -> None:
    nodes = (host(0), host(1, "joining", "starting Ray"), host(2, "missing", "no host has joined yet", "-"))
    app = App(shown(replica(0), nodes=nodes))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert re.fullmatch(rf"hosts +◌ 1 of 3 ready run on the missing host: {JOIN}", app.line("hosts"))
        assert "n1" not in app.pane.text
        await press(pilot, "2", "home", "enter")
        rows = [row.text.rstrip() for row in app.pane.rows]
        at = next(index for index, row in enumerate(rows) if row.startswith("hosts"))
        assert re.fullmatch(
            rf"  \(none\) +◌ missing 1[2-9]s +no host has joined yet; run there: {JOIN}", rows[at + 1]
        )
        assert re.fullmatch(r"  n1 +◐ joining 1[2-9]s +10.0.0.1  starting Ray", rows[at + 2])
        assert re.fullmatch(r"  n0 +● ready +10.0.0.0", rows[at + 3])
        assert rows[at + 4].startswith("r0 ")
        await press(pilot, "down", "enter")
        assert [n.message for n in app._notifications] == [f"▲ run there: {JOIN}"]
        await press(pilot, "space")
        assert [*app._notifications][-1].message == "▲ this row cannot be marked"
        await press(pilot, "down", "enter")
        assert [*app._notifications][-1].message == "▲ n0 has nothing to open"
        await press(pilot, "down", "enter")
        assert app.opened == ["r0"]
        await press(pilot, "home", "enter")
        assert "n1" not in app.pane.text


async def test_a_lost_host_of_many_is_seen_unscrolled() -> None:
    why = "Unexpected termination: health check failed"
    nodes = (*(host(i) for i in range(62)), host(62, "lost", why), host(63, "lost", why))
    app = App(shown(*(replica(i) for i in range(128)), nodes=nodes))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert re.fullmatch(r"hosts +✖ 62 of 64 ready n62 lost: Unexpected termin.*", app.line("hosts"))
        await press(pilot, "2", "o", *"problems", "enter")
        assert app.line("hosts")
        await press(pilot, "home", "enter")
        assert "  n62" in app.pane.text and "  n63" in app.pane.text


@pytest.mark.parametrize(
    ("state", "lost", "seen"), [("done", False, False), ("failed", True, True), ("running", False, True)]
)
async def test_hosts_after_the_end(state: str, lost: bool, seen: bool) -> None:
    nodes = (host(0), host(1, "lost", "it left the run") if lost else host(1))
    app = App(shown(replica(0), nodes=nodes, state=state))
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        assert ("hosts " in app.pane.text) == seen


async def test_a_run_on_one_host_has_no_row_of_hosts() -> None:
    app = App(shown(replica(0)))
    async with app.run_test(size=(120, 24)) as pilot:
        await settle(pilot)
        assert "hosts" not in app.pane.text


@pytest.mark.parametrize("leave", ["escape", "4"])
async def test_a_log_that_a_selection_has_narrowed_says_so_and_is_whole_again(leave: str) -> None:
    actor = msgspec.structs.replace(replica(1, kind="verl", pid=4711), name="vllm_server_1_0")
    services = (service("ray", "ray"), service("trainer", "trainer"))
    app = RecordingApp(shown(actor, services=services, gpus=(gpu(0),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        logs = app.screen.query_one(LogsPane)
        await press(pilot, "2", "down", "up")
        await until(pilot, lambda: "only lines of vllm_server_1_0 (pid 4711)" in logs.text)
        assert "only /" not in logs.text and logs.tab().name == "trainer"
        await press(pilot, leave)
        await until(pilot, lambda: not logs.filter.narrows and logs.tab().name == ALL)
        assert "only lines" not in logs.text


async def test_a_log_goes_on_while_it_is_read() -> None:
    actor = msgspec.structs.replace(replica(1, kind="verl", pid=4711), name="vllm_server_1_0")
    app = RecordingApp(shown(actor, services=(service("trainer", "trainer"),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        logs = app.screen.query_one(LogsPane)
        await press(pilot, "2", "down", "up", "3")
        await until(pilot, lambda: "only lines of vllm_server_1_0" in logs.text)
        assert logs.filter.narrows, "the user reads these lines"


@pytest.mark.parametrize(
    ("why", "playing", "ended"),
    [("", "3s of 9s", False), ("paused", "3s of 9s", False), ("the end", "", True)],
)
async def test_the_log_of_a_recording_at_its_end_says_end(why: str, playing: str, ended: bool) -> None:
    playing_view = msgspec.structs.replace(shown(), link="demo", why=why, playing=playing)
    app = RecordingApp(playing_view)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        logs = app.screen.query_one(LogsPane)
        await until(pilot, lambda: ("■ end" if ended else "▶ following") in logs.text)


async def test_a_service_that_waits_says_waiting_once() -> None:
    trainer = service("trainer", "trainer", state="waiting", why="waiting for proxy to be ready")
    app = RecordingApp(view(services=(trainer,), state="starting"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        rows = [row.text for row in app.screen.query_one(ReplicasPane).rows]
        assert any("◌ waiting for proxy to be ready" in " ".join(text.split()) for text in rows), rows


@pytest.mark.parametrize(
    ("state", "generation", "listed"),
    [("waiting", 0, False), ("starting", 1, False), ("starting", 2, True), ("ready", 1, True)],
)
async def test_no_replica_is_in_a_proxy_that_has_not_started(
    state: str, generation: int, listed: bool
) -> None:
    """Its list is written before it starts; the cell said ``in`` beside a proxy that waited for its environment."""
    proxy = service("proxy", "proxy", state, generation=generation)
    app = App(shown(replica(0), services=(proxy,)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        assert ("● in" in app.line("r0")) == listed, app.line("r0")
