"""Commands that have actions, such as ``rules check``."""

from __future__ import annotations

import click

from liverl.util.nearest import did_you_mean


class Actions(click.Group):
    """A command of which an unknown action is answered with the closest one, else with all of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Fail with the closest name when ``args`` begins with an unknown one."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.commands) or ", ".join(self.commands)
            ctx.fail(f"{self.name} has no {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)
