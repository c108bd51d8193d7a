"""The section ``notify``: what is refused, that no address is shown or saved, and what the plan says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from liverl.config import ConfigError, dump_yaml, load_config, resolved
from liverl.config.load import load_over
from liverl.plan import make_plan
from liverl.plan.render import plan_json, plan_text
from liverl.plan.spec import NotifyPlan, NotifyTarget, Plan
from liverl.preflight.host import notifications

SECRET = "T0KEN-of-the-hook"
ENV = {"HOME": "/home/user"}


def plan_of(*sets: str, file: Path | None = None) -> Plan:
    loaded = load_config(file, sets=["run.name=n", *sets], env=ENV)
    config = resolved(loaded.config, env=ENV, cwd=Path("/work"), now=0.0, file=file)
    return make_plan(msgspec.structs.replace(loaded, config=config), Path("/runs/p/n"))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (f"targets=https://h/{SECRET}", "a list; each item a mapping with command, webhook, apprise"),
        (f"targets=[https://h/{SECRET}]", "a mapping with command, webhook, apprise"),
        (f"targets=[{{webhook: 'https://h/{SECRET}'}}]", "the address is a secret"),
        (f"targets=[{{apprise: 'slack://{SECRET}'}}]", "the address is a secret"),
        (f"targets=[{{'https://h/{SECRET}': x}}]", "a mapping with command, webhook, apprise"),
        (f"targets=[{{webhook: [{SECRET}]}}]", "wrong value"),
        (f"targets=[{{command: [curl, 'https://h/{SECRET}']}}]", "could be read in the process list"),
        (f"targets=[{{command: [tell, --token, {SECRET}]}}]", "could be read in the process list"),
        (f"targets=[{{command: [tell, --api-key={SECRET}]}}]", "could be read in the process list"),
        ("targets=[{webhok: 'file:/x'}]", "did you mean webhook?"),
        ("targets=[{}]", "names no target"),
        ("targets=[{webhook: ''}]", "names no target"),
        ("targets=[{command: [a], webhook: 'file:/x'}]", "names several targets"),
        ("targets=[{command: []}]", "names no program"),
        ("targets=[{command: ['']}]", "a string that is not empty"),
        ("targets=[{command: tell}]", "write it as a list"),
        ("targets=[{webhook: 'file:x'}]", "the file must have an absolute path"),
        ("targets=[{command: [a]}, {command: [a]}]", "given twice"),
        ("events=[faild]", "did you mean failed?"),
        ("events=[end]", "one of alert, done, failed, resumed, stalled, stopped"),
        ("min_level=critcal", "did you mean critical?"),
        ("timeout=0", "a number > 0 and <= 60"),
        ("timeout=61", "a number > 0 and <= 60"),
        ("target=[]", "did you mean notify.targets?"),
    ],
)
def test_what_is_refused(setting: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(sets=[f"notify.{setting}"], env={})
    text = str(refused.value)
    assert told in text and "notify." in text
    assert SECRET not in text


def test_an_error_names_line_and_target(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("notify:\n  targets:\n    - {command: [a]}\n    - {webhook: https://h/x}\n")
    with pytest.raises(
        ConfigError, match=r"c\.yaml:3:\d+: notify\.targets\[1\]\.webhook: the address is a secret"
    ):
        load_config(path, env={})


def test_what_the_plan_says(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "notify:\n  targets: [{command: [./tell, -q]}, {webhook: 'file:~/hook'}, {apprise: file:/a},"
        " {command: [tell]}]\n"
        "  events: [done, alert, done]\n  min_level: warning\n  timeout: 5\n"
    )
    plan = plan_of(file=path)
    targets = (
        NotifyTarget("command", words=(f"{tmp_path}/tell", "-q")),
        NotifyTarget("webhook", file="/home/user/hook"),
        NotifyTarget("apprise", file="/a"),
        NotifyTarget("command", words=("tell",)),
    )
    assert plan.notify == NotifyPlan(targets, ("done", "alert"), "warning", 5.0)
    assert f"notify     command {tmp_path}/tell -q: done, alert (alerts from warning on)\n" in plan_text(plan)
    assert "notify     webhook in /home/user/hook: done, alert (alerts from warning on)\n" in plan_text(plan)
    assert '"file": "/home/user/hook"' in plan_json(plan)


def test_it_is_saved_and_read_again(tmp_path: Path) -> None:
    sets = ["notify.targets=[{command: [tell, 'a b']}, {webhook: 'file:/x'}]", "notify.events=[done]"]
    before = load_config(sets=sets, env={}).config
    (tmp_path / "config.yaml").write_text(dump_yaml(before))
    assert load_over(tmp_path / "config.yaml", env={}).config.notify == before.notify


def test_a_variable_can_set_it() -> None:
    loaded = load_config(env={"LIVERL_NOTIFY__TARGETS": "[{command: [tell]}]"})
    assert loaded.config.notify.targets[0].command == ("tell",)


@pytest.mark.parametrize(
    ("sets", "warnings"),
    [
        (
            ["notify.timeout=5"],
            "--set: notify.timeout has no effect: notify.targets is empty: nothing is sent",
        ),
        (
            ["notify.targets=[{command: [a]}]", "notify.events=[done]", "notify.min_level=info"],
            "--set: notify.min_level has no effect: notify.events has no alert",
        ),
        (["notify.targets=[{command: [a]}]", "notify.timeout=5"], ""),
    ],
)
def test_a_key_that_does_nothing_says_so(sets: list[str], warnings: str) -> None:
    assert " ".join(load_config(sets=sets, env={}).warnings) == warnings


def test_who_could_not_be_told_is_named_before_the_start(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text(f"https://h/{SECRET}\n")
    hook.chmod(0o640)
    plan = plan_of(f"notify.targets=[{{webhook: 'file:{hook}'}}, {{command: [no-such-program]}}]")
    (check,) = notifications(plan)
    assert check.status == "warn" and SECRET not in check.text
    assert f"chmod 600 {hook}" in check.text and "there is no program no-such-program in PATH" in check.text
    hook.chmod(0o600)
    (check,) = notifications(plan_of(f"notify.targets=[{{webhook: 'file:{hook}'}}, {{command: [sh]}}]"))
    assert check.status == "ok"
    assert notifications(plan_of()) == []
