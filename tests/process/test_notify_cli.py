"""``liverl-tui notify``: who is told, and a test message for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.cli import run_cli
from kit.receivers import TOKEN, Hook, keeper_of, kept, webhook
from kit.runs import ToyRun, make_run, toy

from liverl.plan.spec import NotifyPlan, NotifyTarget


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook() as hook:
        yield hook


def settings(*targets: NotifyTarget) -> str:
    plain = [{"command": t.words} if t.kind == "command" else {t.kind: f"file:{t.file}"} for t in targets]
    return f"notify.targets={json.dumps(plain)}"


def test_each_target_gets_one_message_and_its_outcome_is_said(hook: Hook, tmp_path: Path) -> None:
    got, bad = (
        tmp_path / "got",
        NotifyTarget("command", words=("/bin/sh", "-c", "sleep 1.2; echo no; exit 4")),
    )
    good = run_cli("notify", "--test", "--set", settings(hook.target(tmp_path), keeper_of(got)))
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.count(": delivered (") == 2
    assert [body["event"] for body in hook.asked] == ["test"] == [one["body"]["event"] for one in kept(got)]

    hook.status = 404
    failed = run_cli("notify", "--test", "--set", settings(hook.target(tmp_path), bad, keeper_of(got)))
    assert failed.returncode == 1
    assert "2  command /bin/sh -c 'sleep 1.2; echo no; exit 4': not delivered: exit 4: no (" in failed.stdout
    assert "not delivered: 127.0.0.1 answered HTTP 404 (" in failed.stdout
    assert "waiting for command /bin/sh -c 'sleep 1.2; echo no; exit 4', at most 10 s ..." in failed.stderr
    assert "2 of 3 messages were not delivered" in failed.stderr
    assert TOKEN not in failed.stdout + failed.stderr
    plain = run_cli("notify", "--test", "--json", "--set", settings(hook.target(tmp_path)))
    assert plain.returncode == 1
    (told,) = json.loads(plain.stdout)
    assert told["ok"] is False and told["why"] == "127.0.0.1 answered HTTP 404"


def test_without_the_option_nobody_is_told(hook: Hook, tmp_path: Path) -> None:
    target = hook.target(tmp_path, 0o644)
    shown = run_cli("notify", "--set", settings(target), "--set", "notify.events=[done]")
    assert shown.returncode == 0 and hook.asked == []
    assert shown.stdout.startswith("this configuration sends: done\n")
    assert f"other users can read {target.file} (mode 0644)" in shown.stdout
    plain = json.loads(run_cli("notify", "--json", "--set", settings(target)).stdout)
    assert plain["events"][0] == "failed" and plain["targets"][0]["target"] == f"webhook in {target.file}"


def test_without_a_target_it_says_so() -> None:
    none = run_cli("notify", "--test")
    assert (
        none.returncode == 2
        and "this configuration has no notification targets: set notify.targets" in none.stderr
    )


def test_the_targets_of_a_run_are_told_only_if_nobody_else_could_have_named_them(
    hook: Hook, tmp_path: Path, ending: Callable[[ToyRun], ToyRun]
) -> None:
    notify = NotifyPlan((hook.target(tmp_path), keeper_of(tmp_path / "got")), ("done",))
    run = ending(make_run(tmp_path, [toy("worker", "sleep")], notify=notify))
    told = run_cli("notify", "--test", "--run", run.run_dir)
    assert told.returncode == 0 and len(hook.asked) == 1
    run.start()
    assert run_cli("notify", "--test").returncode == 0 and len(hook.asked) == 2, "the live run is meant"
    assert len(kept(tmp_path / "got")) == 2
    run.run_dir.chmod(0o777)
    refused = run_cli("notify", "--test", "--run", run.run_dir)
    assert refused.returncode == 3 and "is not trusted" in refused.stderr
    assert len(hook.asked) == 2 and len(kept(tmp_path / "got")) == 2
    assert run_cli("notify", "--run", run.run_dir).returncode == 0, "looking executes nothing"
    trusting = run_cli("notify", "--test", "--run", run.run_dir, "--trust", run.run_dir)
    assert trusting.returncode == 0 and len(hook.asked) == 3
    run.run_dir.chmod(0o755)
