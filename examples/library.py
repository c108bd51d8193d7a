"""Start a run from a program, print one line per training step, and exit with the run's exit code. Ctrl-C stops it.

python examples/library.py [section.key=value ...]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import liverl


async def follow(run_dir: Path) -> int:
    """Print the events of the training steps until the run ends; returns the run's exit code."""
    async with liverl.connect(run_dir) as client:
        async for event in client.events():
            if event.kind == "step":
                print(event.text, flush=True)
    result = liverl.RunDir(run_dir).read_result()
    return result.exit_code if result is not None else 1


def main() -> int:
    """Exit code 2 for settings that are wrong, else that of the start or of the run. The run goes on without this
    program, so Ctrl-C stops it: its services in the order of their dependencies, which takes a while."""
    try:
        run_dir = liverl.start_run(liverl.load_config(sets=sys.argv[1:]))
    except (liverl.ConfigError, liverl.PlanError) as error:
        print(error, file=sys.stderr)
        return 2
    except liverl.LaunchError as error:  # a check failed, or the run exists already
        print(error, file=sys.stderr)
        return error.exit_code
    print(run_dir)
    try:
        return asyncio.run(follow(run_dir))
    except KeyboardInterrupt:
        result = liverl.stop_run(run_dir)
        return result.exit_code if result is not None else 1


if __name__ == "__main__":
    sys.exit(main())
