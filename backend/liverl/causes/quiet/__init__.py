"""Ends without an error: how many steps a training owed, how many it made, and why it ended before the last one."""
