"""``logs``: which run and which services its words name where no run is live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.ended_runs import a_run

from liverl.rundir.layout import RunDir
from liverl_tui.cli.logs import _run_and_services


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs that have ended: the older one is named like a service of the newest."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for ended, name in enumerate(("trainer-7b", "newest")):
        a_run(tmp_path, name)
        run = RunDir(tmp_path / "exp" / name)
        run.plan.write_text('{"services": [{"name": "trainer"}, {"name": "ray"}]}')
        os.utime(run.result, (1_760_000_000 + ended, 1_760_000_000 + ended))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "run", "services"),
    [
        (("trainer",), "newest", ("trainer",)),
        (("ray", "trainer"), "newest", ("ray", "trainer")),
        (("trainer-7",), "trainer-7b", ()),
        (("trainer-7b", "trainer"), "trainer-7b", ("trainer",)),
        (("exp/trainer-7b",), "trainer-7b", ()),
        (("nonsense",), "newest", ("nonsense",)),
    ],
)
def test_a_service_of_the_newest_run_goes_before_the_name_of_another(
    words: tuple[str, ...], run: str, services: tuple[str, ...], root: Path
) -> None:
    found, named = _run_and_services(words, None, root)
    assert (found.path.name, named) == (run, services)
