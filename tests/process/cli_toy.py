"""The real command line with a toy backend behind ``up``: ``python cli_toy.py ARGUMENTS...``."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def install():
    from liverl import preflight
    from liverl.daemon import launch
    from liverl.model import Check
    from liverl.rundir.layout import RunDir

    toy = load("control_toy")

    def start_backend(run_dir, *, resume=False, stop=None, change=None, tell=print, stops=int):
        if os.environ.get("TOY_REFUSES"):
            raise launch.LaunchError("the toy refuses to start", 1)
        result = RunDir(run_dir).read_result()
        attempt = result.attempt + 1 if resume and result else 1
        return toy.spawn(run_dir, TOY_ATTEMPT=str(attempt)).pid

    def run_checks(plan, config=None, **_):
        text = os.environ.get("TOY_PREFLIGHT", "")
        return [Check("toy check", "fail", text)] if text else [Check("toy check", "ok", "fine")]

    launch.start_backend = start_backend
    preflight.run_checks = run_checks


if __name__ == "__main__":
    install()
    from liverl_tui.cli.main import main

    main()
