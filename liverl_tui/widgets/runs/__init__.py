"""Several runs: the list of all, and two to six side by side."""
