"""Whose process is it? Tables of made-up processes; the real ones are in tests/process."""

from __future__ import annotations

from liverl.procs.procfs import Proc, parse_stat
from liverl.procs.tree import STRAYS, Trees
from liverl.supervise.recovery.replay import read_history

KEEPER = 10


def proc(
    pid: int, ppid: int, *, session: int | None = None, tick: int | None = None, state: str = "S"
) -> Proc:
    return Proc(pid, ppid, session or pid, session or pid, tick or pid * 100, state, "x")


def trees(*procs: Proc, tags: dict[int, str] | None = None) -> tuple[Trees, dict[str, object]]:
    table = {p.pid: p for p in (proc(1, 0), proc(KEEPER, 1), *procs)}
    found = Trees("p/n", keeper_pid=KEEPER, not_ours=frozenset({KEEPER}))
    return found, {"table": table, "read_tag": (tags or {}).get}


LEADERS = {"a.1": (20, 2000), "b.1": (30, 3000)}


def pids(live: dict[str, set[tuple[int, int]]], key: str) -> list[int]:
    return sorted(pid for pid, _ in live.get(key, ()))


def test_descent_session_and_tag() -> None:
    known, args = trees(
        proc(20, KEEPER),
        proc(21, 20, session=20),
        proc(22, 21),  # its own session, child of a child
        proc(23, KEEPER, session=20),  # reparented, still in the session
        proc(24, KEEPER),  # reparented, own session, still tagged
        proc(30, KEEPER),
        proc(99, 1),
        tags={24: "p/n/a/1"},
    )
    live = known.update(LEADERS, **args)  # type: ignore[arg-type]
    assert pids(live, "a.1") == [20, 21, 22, 23, 24]
    assert pids(live, "b.1") == [30]


def test_a_member_once_seen_stays_one_when_every_sign_is_gone() -> None:
    known, args = trees(proc(20, KEEPER), proc(21, 20, session=21))
    known.update(LEADERS, **args)  # type: ignore[arg-type]
    args2 = trees(proc(21, 1, session=21))[1]
    assert pids(known.update(LEADERS, **args2), "a.1") == [21]  # type: ignore[arg-type]


def test_a_reused_pid_is_somebody_else() -> None:
    known, args = trees(proc(20, KEEPER), proc(21, 20, session=21))
    known.update(LEADERS, **args)  # type: ignore[arg-type]
    stranger = proc(21, 1, tick=9999)
    namesake = proc(20, 1, tick=8888)
    live = known.update(LEADERS, **trees(stranger, namesake, proc(40, 20, session=20))[1])  # type: ignore[arg-type]
    assert pids(live, "a.1") == []


def test_an_unsigned_stray_goes_to_the_service_that_is_ending() -> None:
    known, args = trees(proc(30, KEEPER), proc(50, KEEPER))
    assert pids(known.update(LEADERS, ending="a.1", **args), "a.1") == [50]  # type: ignore[arg-type]
    known, args = trees(proc(30, KEEPER), proc(50, KEEPER))
    assert pids(known.update(LEADERS, **args), STRAYS) == [50]  # type: ignore[arg-type]


def test_a_fork_of_the_keeper_is_nobodys_until_it_has_become_its_service() -> None:
    fork = proc(50, KEEPER)
    known, args = trees(proc(30, KEEPER), fork, tags={50: "p/n/keeper/0"})
    live = known.update(LEADERS, ending="a.1", spawning=True, **args)  # type: ignore[arg-type]
    assert pids(live, "a.1") == [] and pids(live, "b.1") == [30] and pids(live, STRAYS) == []
    args["read_tag"] = {50: "p/n/c/1"}.get
    live = known.update(LEADERS, ending="a.1", **args)  # type: ignore[arg-type]
    assert pids(live, "c.1") == [50], "what it said before is not remembered"


def test_other_runs_and_our_own_kind_are_left_alone() -> None:
    known, args = trees(proc(60, 1), proc(61, 1), tags={60: "p/other/a/1", 61: "p/n/backend/0"})
    live = known.update({}, **args)  # type: ignore[arg-type]
    assert not any(live.values())


def test_a_zombie_is_not_alive() -> None:
    known, args = trees(proc(20, KEEPER, state="Z"), proc(21, 20, session=20))
    assert pids(known.update(LEADERS, **args), "a.1") == [21]  # type: ignore[arg-type]


def test_stat_with_brackets_and_spaces_in_the_name() -> None:
    text = b"12 (a) b (c) S 1 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1"
    found = parse_stat(text)
    assert (found.pid, found.comm, found.ppid, found.tick) == (12, "a) b (c", 1, 777)


def test_history_of_a_swap_cut_in_the_middle() -> None:
    def state(gen: int, role: str, name: str, **machine: object) -> dict[str, object]:
        body = {"state": name, "generation": gen, "leader_gone": False, **machine}
        return {"k": "state", "svc": "proxy", "gen": gen, "role": role, "unit": body}

    intent = {"k": "intent", "svc": "proxy", "gen": 2, "role": "incoming", "ports": {}, "gpus": []}
    history = read_history(
        [
            {"k": "attempt", "n": 1, "era": "b", "at": 1.0},
            state(1, "current", "ready"),
            {**intent, "log": "l", "log_start": 0, "at": 1.0},
            {"k": "spawned", "svc": "proxy", "gen": 2, "pid": 77, "tick": 5},
            state(2, "incoming", "starting"),
            {"k": "something_newer"},
        ]
    )
    current, incoming = history.current("proxy"), history.incoming("proxy")
    assert current is not None and current.generation == 1
    assert incoming is not None and (incoming.generation, incoming.pid) == (2, 77)
    assert history.highest == {"proxy": 2} and history.retiring("proxy") == []
