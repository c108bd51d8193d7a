"""Start a run from a program, print one line per training step, and exit with the run's exit code. Ctrl-C stops it.

python examples/library.py [section.key=value ...]
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from msgspec.structs import replace

import liverl
from liverl.config import resolved, run_directory
from liverl.daemon.launch import create_run, start_backend


def start(sets: list[str]) -> Path:
    """Start the run that the settings describe, and return its directory.

    Raises:
        liverl.ConfigError: a setting is wrong.
        liverl.LaunchError: the run exists already, or its backend did not start.
    """
    loaded = liverl.load_config(sets=sets)
    config = resolved(loaded.config, env=os.environ, cwd=Path.cwd(), now=time.time())
    run_dir = run_directory(config)
    plan = liverl.make_plan(replace(loaded, config=config), run_dir)
    create_run(replace(loaded, config=config), plan, run_dir)
    start_backend(run_dir)
    return run_dir


async def follow(run_dir: Path) -> int:
    """Print the events of the training steps until the run ends; returns the run's exit code."""
    async with liverl.connect(run_dir) as client:
        async for event in client.events():
            if event.kind == "step":
                print(event.text, flush=True)
    result = liverl.RunDir(run_dir).read_result()
    return result.exit_code if result is not None else 1


def main() -> int:
    """Exit code 2 for settings that are wrong, else the run's. The run goes on without this program, so Ctrl-C stops
    it: its services in the order of their dependencies, which takes a while."""
    try:
        run_dir = start(sys.argv[1:])
    except liverl.ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(run_dir)
    try:
        return asyncio.run(follow(run_dir))
    except KeyboardInterrupt:
        result = liverl.stop_run(run_dir)
        return result.exit_code if result is not None else 1


if __name__ == "__main__":
    sys.exit(main())
