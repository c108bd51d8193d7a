"""What the proxy's processes have counted: together, whichever of them serves."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from liverl.plan.spec import Plan
from liverl.serving.proxy_routes import ProxyRoutes
from liverl.supervise.services.supervisor import Supervisor


class Proxy:
    """A run's proxy, of whose processes only the reports are real."""

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / "proxy"
        self.folder.mkdir()
        self.generations: list[int] = []
        slot = SimpleNamespace(
            instances=lambda: [
                SimpleNamespace(process=SimpleNamespace(generation=g)) for g in self.generations
            ],
            current=SimpleNamespace(machine=SimpleNamespace(generation=1), port=lambda _name: 4000),
            spec=SimpleNamespace(host="127.0.0.1"),
        )
        records = SimpleNamespace(write_failed=pytest.fail, warn=pytest.fail)
        self._supervisor = SimpleNamespace(run_dir=run_dir, attempt=1, slots={"proxy": slot}, records=records)
        self.list = self.another_backend()

    def another_backend(self) -> ProxyRoutes:
        self.list = ProxyRoutes(
            cast(Supervisor, self._supervisor), cast(Plan, SimpleNamespace(replica_token_file="")), 1.0
        )
        return self.list

    def reports(self, generation: int, **counts: Any) -> None:
        (self.folder / f"status.{generation}.json").write_text(json.dumps(counts))

    def counted(self, *living: int) -> tuple[int | None, int | None, int]:
        self.generations = [*living]
        self.list.reader()()()
        status = self.list.status()
        return status.requests, status.failures, status.unattributed


def test_a_new_generation_counts_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path)
    proxy.reports(1, requests=1450, failures=3, unattributed=1)
    assert proxy.counted(1) == (1450, 3, 1)
    proxy.reports(2, requests=0, failures=0, unattributed=0)
    assert proxy.counted(2, 1) == (1450, 3, 1)
    proxy.reports(1, requests=1460, failures=4, unattributed=1)  # its last word, after it was read last
    assert proxy.counted(2) == (1460, 4, 1)
    proxy.reports(2, requests=40, failures=1, unattributed=2)
    assert proxy.counted(2) == (1500, 5, 3)
    proxy.reports(3, requests=5)
    assert proxy.counted(3) == (1505, 5, 3)


def test_models_that_are_not_there_are_told_by_name(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path)
    proxy.reports(1, refused=2, unknown_models={"(others)": 9, "gpt-4o": 1, "sonnet": 5})
    proxy.counted(1)
    status = proxy.list.status()
    assert (status.refused, status.unknown, status.unknown_models) == (
        2,
        15,
        ("sonnet", "gpt-4o", "(others)"),
    )
    proxy.reports(2, refused=1, unknown_models="torn")
    proxy.counted(2)
    status = proxy.list.status()
    assert (status.refused, status.unknown, status.unknown_models) == (3, 15, ())


def test_a_later_backend_counts_those_of_before_it_and_passes_over_what_is_no_report(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path)
    proxy.reports(1, requests=7, failures=None, unattributed="x")
    proxy.reports(2, requests=2)
    (proxy.folder / "status.x.json").write_text("{}")
    (proxy.folder / "status.9.json").write_text("torn")
    assert proxy.counted(2) == (9, 0, 0)
    proxy.another_backend()
    assert proxy.counted(2) == (9, 0, 0)
    assert proxy.counted() == (9, 0, 0)
