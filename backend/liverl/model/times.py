"""Times of a run."""

from typing import Annotated

import msgspec

# What is decoded is checked: a clock shows no other times, and fails for them.
UnixTime = Annotated[float, msgspec.Meta(ge=-1e11, le=1e11)]
