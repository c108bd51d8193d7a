"""Values on verl's command line, read by the real Hydra: each arrives as it is, or is refused before a run starts.

Needs a Python with Hydra: LIVERL_TEST_HYDRA_PYTHON (or LIVERL_TEST_VERL_PYTHON) names it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from kit.odd_values import HYDRA_PYTHON, LEAK, ODD, REPLACED, random_texts, read_by_hydra
from kit.plans import plan_of, service

from liverl.plan.hydra import HydraError, Override, command_line

pytestmark = pytest.mark.skipif(
    not HYDRA_PYTHON, reason="LIVERL_TEST_HYDRA_PYTHON names no Python with Hydra"
)


def refused(value: Any) -> bool:
    """Whether a value is refused, in place of being written into a command line."""
    try:
        return not command_line([Override("v", value, new=True)], {})
    except HydraError:
        return True


def test_each_value_arrives_as_it_is_or_is_refused(tmp_path: Path) -> None:
    texts = [*ODD, *REPLACED, *random_texts(1000)]
    texts += [
        f"{left}${{oc.env:LIVERL_LEAK}}{right}"
        for left in ("", "\\", "'", "\\'")
        for right in ("", "\\", "'")
    ]
    values: list[Any] = [*texts, *(list(pair) for pair in itertools.pairwise(texts))]
    values += [{"name": value} for value in texts] + [{value: 1} for value in texts]
    values += [1e-6, 1e22, -0.5, 10**17, 0, True, False, None, [], {}, [[], {"a": [None, "null", 1.5]}]]
    given = {f"v{n}": value for n, value in enumerate(values) if not refused(value)}
    assert len(given) > 2000
    (read,) = read_by_hydra(
        tmp_path, [command_line([Override(k, v, new=True) for k, v in given.items()], {})]
    )
    assert "error" not in read, read["error"]
    for once_or_twice in (read["once"], read["twice"]):
        wrong = [
            (value, once_or_twice.get(key))
            for key, value in given.items()
            if once_or_twice.get(key, "nothing") != value or type(once_or_twice[key]) is not type(value)
        ]
        assert not wrong, f"{len(wrong)} of {len(given)}: {wrong[:5]}"
    assert read["kinds"] == ["str"]
    assert not [value for value in ODD if refused(value)], "only what verl would replace is refused"
    assert all(refused(value) for value in REPLACED)


def test_names_of_overrides_that_are_taken_are_names_to_hydra_too(tmp_path: Path) -> None:
    names = [*ODD, *random_texts(100, seed=8), "a", "a.b", "a-b", "_x", "a1.b_2"]
    lines = []
    for name in names:
        if name:
            try:
                lines.append((name, command_line([], {f"++{name}": 1})))
            except HydraError:
                assert name not in ("a", "a.b", "a-b", "_x", "a1.b_2")
    found = read_by_hydra(tmp_path, [words for _, words in lines])
    for (name, _words), read in zip(lines, found, strict=True):
        if "error" in read:
            continue  # Hydra says that it is no name, and starts nothing
        value: Any = read["once"]
        for part in name.split("."):
            value = value[part]
        assert value == 1, name


def test_a_whole_plan_gives_no_variable_away(tmp_path: Path) -> None:
    """The command line of a plan with odd values in every text that verl gets."""
    odd = "a ,b=c:[d]{e}(f)~@+ 'g' \\"
    sets = (
        "algorithm.kl_loss_type",
        "algorithm.adv_estimator",
        "model.model_path",
        "vllm.dtype",
        "data.train_index",
    )
    plan = plan_of(
        *(f"{key}={'/' if key == 'data.train_index' else ''}{odd}" for key in sets), profile="liverl-gen1"
    )
    words = [word.replace("{port:proxy}", "4000") for word in service(plan, "trainer").argv[3:]]
    (read,) = read_by_hydra(
        tmp_path, [[f"++{word.lstrip('+')}" for word in words if not word.startswith("hydra.")]]
    )
    assert "error" not in read, read
    config = read["once"]
    assert config["actor_rollout_ref"]["model"]["path"] == odd
    assert config["algorithm"]["adv_estimator"] == config["actor_rollout_ref"]["rollout"]["dtype"] == odd
    assert config["data"]["train_files"] == f"/{odd}"
    assert LEAK not in str(read)
