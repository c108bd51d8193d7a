"""What must not be in a recording: the recording machine's paths, its names and addresses, and keys. Pure."""

from __future__ import annotations

import re

from liverl.util import redact

_ADDRESS = re.compile(r"(?<![\w.])(?!127\.|0\.|255\.)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_USER = re.compile(r"(?<=/home/)[^/\s\"']+")
# Folders at the root of the recording machine, and what stands for each.
_FOLDERS = {"root": "/home/user", "tmp": "/scratch", "work": "/srv", "mnt": "/srv"}
_FOLDER = re.compile(rf"(?<![\w.~-])/({'|'.join(_FOLDERS)})(?=/|\b)")
HOST, RUNS = "gpu-node", "/srv/runs/demo"


class Scrub:
    """Replaces what names the recording machine. ``run_dir``: the run's path there; ``host``: its name."""

    def __init__(self, name: str, run_dir: str, host: str) -> None:
        self.run = f"{RUNS}/{name}"
        self._run_dir = run_dir
        self._run_name = "/".join(run_dir.split("/")[-2:])
        self._new_name = f"demo/{name}"
        self._host = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-])") if host else None

    def __call__(self, text: str) -> str:
        """``text`` with neutral paths, host and addresses, and without keys."""
        text = text.replace(self._run_dir, self.run).replace(self._run_name, self._new_name)
        text = _FOLDER.sub(lambda match: _FOLDERS[match[1]], text)
        text = _USER.sub("user", text)
        if self._host is not None:
            text = self._host.sub(HOST, text)
        return redact.value(_ADDRESS.sub("10.0.0.1", text))

    def data(self, data: bytes) -> bytes:
        """The same for bytes; what is no UTF-8 stays."""
        return self(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
