"""Pictures of the real program: runs the embedded default in a pseudo terminal and saves what it showed.

``python screenshots/make.py`` writes ``run.svg`` (a whole run, as ``up --no-ui`` shows it) and ``status.svg``
beside this file. It takes as long as the run, about a minute and a half.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
WIDTH, HEIGHT = 110, 40
COMMAND = [sys.executable, "-m", "liverl_tui.cli"]


def in_terminal(arguments: list[str], env: dict[str, str]) -> str:
    """Everything a command writes to a terminal of WIDTH x HEIGHT."""
    main, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen([*COMMAND, *arguments], stdin=side, stdout=side, stderr=side, env=env)
    os.close(side)
    written = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:  # the terminal ends with its last writer
            break
        if not chunk:
            break
        written += chunk
    process.wait()
    os.close(main)
    return written.decode("utf-8", "replace").replace("\r\n", "\n")


def save(name: str, title: str, text: str, root: str) -> None:
    """One picture; the temporary directory of this run is shown as ``~/runs``."""
    text = text.replace(root, "~/runs")
    with open(os.devnull, "w") as nowhere:
        console = Console(
            record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(Text.from_ansi(text.rstrip("\n")), soft_wrap=False)
        svg = console.export_svg(title=title)
    # The picture must not fetch fonts from anywhere: the viewer's own monospace will do.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (HERE / name).write_text(svg)
    print(HERE / name)


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        env = {
            **os.environ,
            "TERM": "xterm-256color",
            "XDG_STATE_HOME": f"{root}/state",
            "COLUMNS": str(WIDTH),
        }
        env.pop("NO_COLOR", None)
        where = ["--run-root", root, "--name", "first", "--set", "infrastructure.litellm_port=0"]
        follower = subprocess.Popen(
            [*COMMAND, "up", "--detach", "--wait", "ready", *where], env=env, stdout=subprocess.DEVNULL
        )
        follower.wait()
        time.sleep(20)  # so that the picture shows steps
        save("status.svg", "liverl-tui status", in_terminal(["status", "--run-root", root], env), root)
        subprocess.run([*COMMAND, "wait", "--for", "done", "--run-root", root], env=env, check=False)
        told = in_terminal(["events", "--run", f"{root}/liverl/first"], env)
        save("run.svg", "liverl-tui --no-ui", told, root)


if __name__ == "__main__":
    main()
