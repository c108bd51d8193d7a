"""``demo``: plays a recorded run, so that the interface can be tried without a stack, a GPU or a network."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import click

from liverl.exit_codes import ExitCode
from liverl_tui.cli.numbers import Number
from liverl_tui.cli.private_folder import PrivateFolder
from liverl_tui.text.errors import CliError

# In liverl/replay/recordings, what each shows. The first is played where none is named.
RECORDINGS = {
    "wrong-parser": "two replicas on an H200 whose tool parser is wrong: no reward, and the reason",
    "learns": "real GRPO on two H200s, 16 steps that work; the reward goes from 0.23 to 0.41",
}
PACKAGED = f"{next(iter(RECORDINGS))}.tar.xz"
PREFIX = "liverl-demo-"


@click.command("demo")
@click.argument("name", required=False, type=click.Choice(list(RECORDINGS)), metavar="[RECORDING]")
@click.option(
    "--run",
    "recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Play this recording (.tar.xz) instead of a packaged one.",
)
@click.option(
    "--speed",
    type=Number(0.1, 100),
    default=1.0,
    metavar="N",
    help="Play N times as fast as recorded (0.1 to 100; default: 1).",
)
@click.option("--loop", is_flag=True, help="Begin again some seconds after the end.")
def demo_command(name: str | None, recording: Path | None, speed: float, loop: bool) -> int:
    """Play a recorded run in the interface. | pauses, { and } go back and forward, ( and ) play it slower and faster.

    RECORDING is wrong-parser (the default: a tool parser that is wrong, why every reward is 0, and what to do), or
    learns (real GRPO on two H200s, 16 steps that work; their reward goes from
    0.23 to 0.41, too few steps to prove a trend).

    It needs no GPU, no network and no stack. Every screen works as in a live run; keys that would change the run say
    what they would do. Nothing is kept: the files of the recording are in a temporary directory while it plays.
    """
    from liverl_tui.cli.mode import mode

    if mode(no_ui=False, plain=False) != "interface":
        raise CliError(
            "demo needs a terminal: stdin, stdout and stderr must be one, and TERM must not be dumb",
            ExitCode.USAGE,
        )
    if name is not None and recording is not None:
        raise CliError(
            f"{name} is a packaged recording, and --run names another: give one of them", ExitCode.USAGE
        )
    with PrivateFolder(PREFIX) as folder:
        if recording is not None:
            return _play(recording, folder, speed, loop)
        file = PACKAGED if name is None else f"{name}.tar.xz"
        with as_file(files("liverl.replay") / "recordings" / file) as packaged:
            return _play(packaged, folder, speed, loop)


def _play(recording: Path, folder: Path, speed: float, loop: bool) -> int:
    from liverl.replay.archive import RecordingError, read
    from liverl_tui.app.start import run_demo
    from liverl_tui.cli.progress import Progress

    try:
        with Progress() as progress:
            progress.say(f"reading the recording {recording}")
            found = read(recording)
        return run_demo(found, folder, speed, loop=loop)
    except RecordingError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    except OSError as error:
        where = error.filename or folder
        raise CliError(
            f"the files of the recording cannot be written: {where}: {error.strerror or error}"
        ) from error
