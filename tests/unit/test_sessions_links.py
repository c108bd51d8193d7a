"""A trial's directory that its agent has replaced by a link: to another trial's, or to another run's."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.session_host import SessionHost
from kit.token_replica import TokenReplica

USER = {"role": "user", "content": "hi"}
NAMES = ("litellm-trajectory.jsonl", "proxy_trajectory.json")


def script(_prompt: str, turn: int) -> str:
    return f"Reply {turn}."


def precious(folder: Path) -> Path:
    made = folder / "precious"
    for trial in ("", "task-00000001"):
        (made / trial).mkdir(exist_ok=True, parents=True)
        for name in NAMES:
            (made / trial / name).write_text("precious\n")
    return made


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("swapped", ["the trial", "all trials"])
async def test_nothing_is_written_through_it_and_no_row_is_lost(
    host: SessionHost, replica: TokenReplica, swapped: str, restarted: bool
) -> None:
    opened = await host.open()
    _, first = await host.chat(opened, USER)
    others = precious(host.folder)
    place = host.folder / "trials" / (opened["id"] if swapped == "the trial" else "")
    place.rename(host.folder / "moved")
    place.symlink_to(others)
    if restarted:
        await host.stop()
        await host.start()
        opened = await host.open()  # its address is another one
    status, body = await host.chat(opened, USER, first["choices"][0]["message"], USER)
    assert status == 500 and "symbolic link" in body["error"]["message"]
    rows = await host.finish()
    assert sum(sum(row["traj_response_mask"]) for row in rows) == sum(map(len, replica.replies))
    assert len(replica.replies) == 2, "also the reply that could not be noted in the trial is trained"
    for path in others.rglob("*.json*"):
        assert path.read_text() == "precious\n", path
    await host.stop()
    await host.start()
    assert await host.finish() == rows, "they are kept beside the journal"


async def test_the_rows_of_another_trial_are_not_given_out(host: SessionHost, replica: TokenReplica) -> None:
    for name in ("task-00000001", "task-00000002"):
        opened = await host.open(name)
        await host.chat(opened, USER)
        await host.finish(name)
    trials = host.folder / "trials"
    (trials / "task-00000001").rename(host.folder / "moved")
    (trials / "task-00000001").symlink_to(trials / "task-00000002")
    status, body = await host.control("POST", "/sessions/task-00000001/finish")
    assert status == 500 and "rows" not in body
