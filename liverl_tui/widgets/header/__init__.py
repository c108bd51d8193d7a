"""The rows at the top of every screen: the run, whether it learns, its alerts."""
