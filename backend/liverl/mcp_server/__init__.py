"""Answers the questions of agents about runs, over the Model Context Protocol: read-only, bounded, without secrets."""
