"""Trials of a run, read from their directories: heads of all trials, and the full trajectory of one."""
