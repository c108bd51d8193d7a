"""Run directories: their layout, the journal, and the index of runs on this host."""
