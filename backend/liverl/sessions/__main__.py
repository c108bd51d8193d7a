"""``python -m liverl.sessions --config FILE.json``: the sessions of a run, on the listening socket in
``LIVERL_LISTEN_FD``, and on that for sandboxes in ``LIVERL_LISTEN_FD_SANDBOXES`` if there is one.

Exit codes: 0 = stopped by SIGTERM or SIGINT, 1 = a file or socket cannot be used, 2 = invalid settings.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import socket
import sys
from pathlib import Path

from liverl.sessions.front import CannotServe, Front
from liverl.sessions.layout import lock
from liverl.sessions.service import Handed, Keys, Service
from liverl.sessions.settings import read_settings
from liverl.sessions.shares import processes
from liverl.sessions.worker import VARIABLE, Inherited, Worker, inherited
from liverl.util import stack_signal
from liverl.util.modes import exclude_others
from liverl.util.regular_file import read_text

_LISTENER, _SANDBOXES = "LIVERL_LISTEN_FD", "LIVERL_LISTEN_FD_SANDBOXES"
# Objects that are made until the youngest are searched for cycles, and rounds of that until older ones are, too.
# Python's own 700 is reached several times in a turn, and each round looks at the requests that are being answered.
COLLECT = (10_000, 20, 20)
LOG_FORMAT = "%(asctime)s %(levelname)s liverl-sessions: %(message)s"


def main(argv: list[str] | None = None) -> int:
    """Run the service; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m liverl.sessions", allow_abbrev=False)
    parser.add_argument("--config", required=True, type=Path, help="JSON file with the service's settings")
    parser.add_argument("--worker", metavar="K/N", help="be process K of N; the front starts it")
    args = parser.parse_args(argv)
    exclude_others()
    # The package tokenizers would give each text to a pool with a thread for each core of the host, which all look for
    # work meanwhile. Texts of several requests are encoded at the same time in any case.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    stack_signal.register()
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=LOG_FORMAT,
    )
    try:
        given = inherited(os.environ.pop(VARIABLE, "")) if args.worker is not None else None
        handed = _read(args.config, given)
        settings, keys = handed.settings, handed.keys
        listener = socket.socket(fileno=_descriptor(_LISTENER))
        sandboxes = socket.socket(fileno=_descriptor(_SANDBOXES)) if os.environ.get(_SANDBOXES) else None
        generation = int(os.environ.get("LIVERL_GENERATION", "1"))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each request has a connection or two
    gc.freeze()  # modules and settings stay: they are not searched again
    gc.set_threshold(*COLLECT)
    try:
        if given is not None:
            asyncio.run(
                Service(settings, keys, listener, generation, sandboxes, Worker(given), handed.differs).run()
            )
            return 0
        held = lock(settings.folder)  # until this process ends
        count = processes(settings.processes)
        if count == 1:
            asyncio.run(Service(settings, keys, listener, generation, sandboxes).run())
            return 0
        listeners = [listener, *([sandboxes] if sandboxes is not None else [])]
        front = Front(settings, keys, listeners, generation, count, args.config, held)
        asyncio.run(front.run())
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except CannotServe as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return 0


def _read(config: Path, given: Inherited | None) -> Handed:
    """The settings and keys: of the front, where that has started this process.

    Raises:
        OSError: a file cannot be read.
        ValueError: one is not valid.
    """
    if given is not None:
        return Handed.read(given.settings)
    settings = read_settings(config)
    keys = Keys(read_text(settings.control_key_file).strip(), read_text(settings.replica_token_file).strip())
    if not keys.control:
        raise ValueError(f"{settings.control_key_file} is empty; it must have the trainer's key")
    return Handed(settings, keys)


def _descriptor(variable: str) -> int:
    """Raises:
    ValueError: the variable is missing or no number.
    """
    text = os.environ.get(variable, "")
    if not text.isdecimal():
        raise ValueError(f"{variable} is {text!r}; it must be the descriptor of a listening socket")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
