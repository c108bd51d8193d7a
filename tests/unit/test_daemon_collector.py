"""The collector of a backend: off while its modules are loaded, on while it serves."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from liverl.daemon import main


def test_it_is_on_again_once_the_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["main", "--help"])
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        with pytest.raises(SystemExit):
            main.main()
        assert gc.isenabled() and gc.get_threshold() == main.COLLECT
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)


def test_who_only_imports_the_module_keeps_his() -> None:
    code = "import gc, liverl.daemon.main; raise SystemExit(not gc.isenabled())"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
