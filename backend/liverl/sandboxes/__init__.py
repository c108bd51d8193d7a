"""What the trials of a run have in Docker: found by the run's labels, and removed. Nothing of anybody else's is
touched: no name is matched by its beginning, and nothing is pruned."""
