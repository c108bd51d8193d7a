"""Where the time of a step goes: the shares of its parts, what it waits for most, and what takes longer than before.
Pure.

``parts``: seconds of a step by part, from a trainer's ``timing_s/*``; ``rollouts``: what its trials waited for, from
their phases or from verl's ``timing_s/agent_loop/*``; ``bottleneck``: one sentence with the key that moves it, or
nothing; ``slower``: which part takes longer, and since when; ``step_time``: all of these.
"""

from liverl.diagnose.where.step_time import NewestStepTime, step_time

__all__ = ["NewestStepTime", "step_time"]
