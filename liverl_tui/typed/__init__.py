"""Typed commands: a line such as ``scale 4`` or ``goto 14:03``, its completions, and what it does."""
