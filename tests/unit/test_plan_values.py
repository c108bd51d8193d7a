"""Values of the configuration in plans: they reach a service as they are, or are refused with the key's name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.odd_values import ODD, REPLACED
from kit.plans import plan_of, service

from liverl.plan import PlanError
from liverl.plan.hydra import HydraError, Override, command_line, text
from liverl.plan.spec import FileSpec
from liverl.supervise.services import prepare

VERL = (
    "model.model_path",
    "vllm.dtype",
    "algorithm.kl_loss_type",
    "algorithm.adv_estimator",
    "verl.agent_loop",
)


def read(written: str) -> str:
    """What Hydra makes of one word of text: quotes are taken off; within them a backslash counts as an escape only
    before a quote and at the end."""
    if not written.startswith("'"):
        assert re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_./-]*", written), written
        assert written.lower() not in ("null", "true", "false", "nan", "inf")
        return written
    inner = re.fullmatch(r"'((?:[^\\']|\\.)*)'", written, re.DOTALL)
    assert inner, f"a quote that is not escaped, or an escaped one at the end: {written}"
    return re.sub(r"(\\+)(?='|\Z)", lambda match: "\\" * (len(match[1]) // 2), inner[1])


@given(
    st.one_of(st.sampled_from(ODD), st.text(alphabet=st.sampled_from("\\'\"${}a ,\n"), max_size=8), st.text())
)
def test_any_text_is_read_as_it_is_or_refused(value: str) -> None:
    try:
        written = text(value)
    except HydraError as error:
        assert "${" in value or value == "???" or re.search("[\0\ud800-\udfff]", value), error
        return
    assert read(written) == value
    assert "${" not in written


@pytest.mark.parametrize("value", [*REPLACED, "a\0b", "\ud800"])
def test_what_cannot_arrive_is_refused_in_every_place(value: str) -> None:
    for inside in (value, [value], {"k": [value]}, {value: 1}):
        with pytest.raises(HydraError):
            text(inside)


@pytest.mark.parametrize(
    "name", ["a,b", "a:b", "", " a", "1", "1.5", "null", "True", "a'", "a}", "-a", "a=b"]
)
def test_names_that_hydra_would_misread(name: str) -> None:
    with pytest.raises(HydraError, match="misread this name"):
        text({"k": {name: 1}})


@pytest.mark.parametrize(
    "name",
    ["--multirun", "-cn", "--config-dir", "+-x", "a=b", "a b", "a,b", "~", "~~x", "a\nb", "a[0]", "+++x"],
)
def test_an_override_is_no_option_and_no_second_key(name: str) -> None:
    with pytest.raises(HydraError, match="not the name of a key"):
        command_line([], {name: "v"})


def test_the_users_own_text_is_hydras_grammar() -> None:
    given_ = {"a": "${oc.env:HOME}", "+b/c@d.e": "[x,'y z']", "hydra.job.name": "x", "++k_1.a-b": None}
    words = ("a=${oc.env:HOME}", "+b/c@d.e=[x,'y z']", "hydra.job.name=x", "++k_1.a-b=null")
    assert command_line([Override("a", "old")], given_) == words
    with pytest.raises(HydraError, match="a command line cannot contain"):
        command_line([], {"a": "x\0y"})


@pytest.mark.parametrize("key", VERL)
@pytest.mark.parametrize(
    "value", ["/m/${oc.env:AWS_SECRET_ACCESS_KEY}", "\\${oc.env:AWS_SECRET_ACCESS_KEY}", "???"]
)
def test_a_plan_names_the_key_of_a_value_that_verl_would_replace(key: str, value: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(f"{key}={value}")
    assert str(error.value).startswith(f"{key}: verl cannot receive ")


def test_a_plan_names_the_override_at_fault() -> None:
    with pytest.raises(PlanError, match=r"^trainer\.overrides\.x: verl cannot receive '\$\{y\}'"):
        plan_of('trainer.overrides={"x": ["${y}"]}')
    with pytest.raises(
        PlanError, match=r"^trainer\.overrides: verl cannot receive '--multirun': not the name"
    ):
        plan_of('trainer.overrides={"--multirun": "x"}')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("+ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN", "hf_x"),
        ("+ray_kwargs.ray_init.runtime_env.env_vars.AWS_SESSION_TOKEN", "x"),
        ("+ray_kwargs.ray_init.runtime_env.env_vars", "{WANDB_API_KEY: x}"),
        ("+x", "[{a: 1}, {'password': y}]"),
        ("+x", ["{api_key:y}"]),
    ],
)
def test_a_secret_in_an_override_is_on_no_command_line(key: str, value: Any) -> None:
    with pytest.raises(PlanError, match="looks like a secret"):
        plan_of(f"trainer.overrides={json.dumps({key: value})}")


def test_ordinary_overrides_are_no_secrets() -> None:
    over = {"data.max_tokens": 3, "+x.eos_token": "a", "+y": "{tokens: 1, key: b}", "z": "http://token:80"}
    assert "+x.eos_token=a" in service(plan_of(f"trainer.overrides={json.dumps(over)}"), "trainer").argv


@pytest.mark.parametrize(
    "value",
    ["{run_dir}", "/a/{attempt_dir}/b", "{generation}", "{port:http}", "{python:vllm}", "{port}", "{index}"],
)
@pytest.mark.parametrize("key", ["harbor_agent.pod_name_prefix", "data.train_index", "model.model_path"])
def test_a_value_that_looks_like_a_placeholder_is_refused(key: str, value: str) -> None:
    with pytest.raises(PlanError, match=re.escape(f"{key}: ")) as error:
        plan_of(f"{key}={value}")
    assert "stands for something else" in str(error.value)


@pytest.mark.parametrize("value", ["{}", "{x}", "{run}", "{0}", "{{run}}", "{Port:x}", "{run_dir"])
def test_other_braces_are_kept(value: str) -> None:
    plan = plan_of(f"harbor_agent.pod_name_prefix={value}")
    assert service(plan, "trainer").env["HARBOR_POD_NAME_PREFIX"] == value
    assert prepare.fill(value, prepare.Placeholders(Path("/r"), Path("/a"), 1, {}, {})) == value


@pytest.mark.parametrize("root", ['/a"b', "/a\\b", "/a\nb", "/läufe {run_dir}"])
def test_a_file_of_settings_stays_json_wherever_the_run_is(tmp_path: Path, root: str) -> None:
    run_dir = tmp_path / root[1:]
    places = prepare.Placeholders(run_dir, run_dir / "attempt_001", 1, {}, {"proxy": 4000})
    plan = plan_of(profile="embedded", run_dir=run_dir)
    prepare.write_files(service(plan, "trainer"), places)
    found = json.loads((run_dir / "trainer" / "settings.json").read_text())
    assert found["run_dir"] == str(run_dir)
    assert found["attempt_dir"] == str(run_dir / "attempt_001")
    assert found["proxy_url"] == "http://127.0.0.1:4000"
    assert FileSpec("a", "b").mode == 0o644
