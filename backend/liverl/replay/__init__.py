"""Recorded runs: what a live run measures is recorded beside its files, packed to one archive, and played again."""
