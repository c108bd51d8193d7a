"""Harbor's mini-swe-agent, taken from the image of the task: Harbor's own class installs it anew in each trial."""

from typing import Any

from harbor.agents.installed.mini_swe_agent import MiniSweAgent


class InImage(MiniSweAgent):
    """Runs the program ``mini-swe-agent`` that the image has on PATH."""

    async def install(self, environment: Any) -> None:
        """Look for it, in the place of the installation."""
        found = await environment.exec(command="command -v mini-swe-agent")
        if found.return_code:
            raise RuntimeError(
                "the image has no program mini-swe-agent on PATH; add to its Dockerfile: "
                "RUN pip install mini-swe-agent==2.4.6"
            )
