"""One trial's environment from start to end, in a process without any privilege: prints what it found as JSON. With
``covered`` the machine's root cannot be replaced, only covered, as where it was booted from the network (simulated)."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

from kit.local_environments import load

ESCAPE = """
import os
os.makedirs('/app/jail')
os.chroot('/app/jail')
for _ in range(20): os.chdir('..')
os.chroot('.')
print(sorted(os.listdir('/tmp')))
"""


async def main(base: Path) -> None:
    package = load()
    if "covered" in sys.argv:
        environments = sys.modules["liverl_local_environment.environment"]
        script = environments.script
        environments.script = lambda *words: script(*words).replace("pivot_root .", "false .")  # type: ignore[attr-defined]
    trial, kept = base / "trial", base / "kept"
    for folder in (trial / "agent", kept, base / "files"):
        folder.mkdir(parents=True)
    (kept / "f").write_text("kept")
    mounts = [(trial / "agent", "/logs/agent", False), (kept, "/mnt/kept", True)]
    given = [{"type": "bind", "source": str(s), "target": t, "read_only": ro} for s, t, ro in mounts]
    environment = package.LocalEnvironment(trial, "trial__s1", base / "files", given)
    await environment.start(False)
    changed = await environment.exec("mount -o remount,bind,rw /mnt/kept; echo no > /mnt/kept/f")
    await environment.upload_dir(kept, "/tests")
    locked = await environment.exec(
        "cat /tests/f; mkdir -p /app/a/b; touch /app/a/b/f; chmod 0 /app/a/b /app/a"
    )
    escaped = await environment.exec(f"touch /tmp/mine; python3 -c {shlex.quote(ESCAPE)}")
    await environment.download_dir("/tests", base / "got")
    await environment.stop(True)
    found = {
        "uid": os.getuid(),
        "capabilities": [
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("CapEff")
        ],
        "refused": changed.return_code != 0 and (kept / "f").read_text(),
        "uploaded": locked.stdout,
        "downloaded": (base / "got" / "f").read_text(),
        "seen outside of a jail": escaped.stdout,
        "left": (trial / "root").exists(),
    }
    print(json.dumps(found))


asyncio.run(main(Path(sys.argv[1])))
