"""The rules: one module for each part of a run, and ``rules`` with all of them and their times."""
