"""Ends from outside (a time limit, a cancelled or preempted job) beside the errors of the run that was ended. Pure."""

from __future__ import annotations

from liverl.causes.verdict.timeline import Moment

BROUGHT_ABOUT = 120.0  # seconds after an end from outside, in which processes fail because of it
QUARTER = 900.0  # seconds: the offsets of time zones are multiples of it
SLACK = 5.0  # seconds by which the clocks of two hosts may differ


def is_older(error: Moment, end: Moment) -> bool:
    """Whether an error in another log was there before the job was ended from outside.

    One that follows within ``BROUGHT_ABOUT`` seconds comes of the end. A log may have been written in another time zone
    that nobody knows, so that only the minutes within a quarter of an hour compare: an error that would stand long
    after the end of its job, and not right behind it in any zone, was there before.
    """
    if error.log == end.log:
        return False
    gap = error.at - end.at
    return gap < -SLACK or (gap > BROUGHT_ABOUT and (gap + SLACK) % QUARTER > BROUGHT_ABOUT + SLACK)
