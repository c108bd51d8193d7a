"""Tasks of Harbor's, and an agent of the user's that does what a task's instruction says."""

from __future__ import annotations

import shutil
from pathlib import Path

HELLO = Path(__file__).parents[1] / "data" / "harbor" / "task-hello"

# In Harbor's interpreter. Each line of the instruction is one thing to do.
AGENT = '''
import asyncio, json, os, time, urllib.request
from pathlib import Path
from harbor.agents.base import BaseAgent


class Obedient(BaseAgent):
    @staticmethod
    def name():
        return "obedient"

    def version(self):
        return "1"

    async def setup(self, environment):
        print("a print of the agent")
        await asyncio.sleep(float(os.environ.get("SETUP_SECONDS", "0")))

    async def run(self, instruction, environment, context):
        for line in instruction.strip().splitlines():
            word, _, rest = line.partition(" ")
            await getattr(self, f"_{word}")(rest, environment)

    def _ask(self, messages, tools=()):
        env = self.extra_env
        body = {"model": env["OPENAI_MODEL"], "messages": messages, **({"tools": tools} if tools else {})}
        request = urllib.request.Request(
            env["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": "Bearer " + env["OPENAI_API_KEY"], "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())["choices"][0]["message"]

    async def _say(self, text, environment):
        """Ask the model, and put its answer into a file."""
        reply = await asyncio.to_thread(self._ask, [{"role": "user", "content": text}])
        await environment.exec("cat > /app/hello.txt <<'END'\\n" + reply["content"] + "\\nEND")

    async def _chat(self, times, environment):
        messages = [{"role": "user", "content": "begin"}]
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        for turn in range(int(times)):
            reply = await asyncio.to_thread(self._ask, messages, [tool])
            messages += [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": str(turn)}]

    async def _shell(self, command, environment):
        result = await environment.exec(command)
        (self.logs_dir / "shell.txt").write_text(result.stdout + result.stderr)

    async def _raise(self, text, environment):
        raise RuntimeError(text)

    async def _once(self, file, environment):
        """Fail if the file of the machine does not exist yet."""
        if not Path(file).exists():
            Path(file).touch()
            raise RuntimeError("the first time")

    async def _exit(self, status, environment):
        print("the agent ends its process", flush=True)
        os._exit(int(status))

    async def _block(self, file, environment):
        """Block Harbor's process, after making the file of the machine."""
        Path(file).touch()
        time.sleep(1000)
'''


def write_task(folder: Path, name: str, instruction: str, verifier: str | None = None) -> str:
    """A task below ``folder`` whose instruction is this; its path. ``verifier``: the script that gives the reward; it
    is 1 if /app/hello.txt is ``hello``."""
    task = folder / name
    shutil.copytree(HELLO, task)
    (task / "instruction.md").write_text(instruction + "\n")
    if verifier is not None:
        (task / "tests" / "test.sh").write_text(f"#!/bin/bash\n{verifier}\n")
    return str(task)


def write_agent(folder: Path) -> str:
    """The agent's module in ``folder``; its import path."""
    (folder / "obedient_agent.py").write_text(AGENT)
    return "obedient_agent:Obedient"
