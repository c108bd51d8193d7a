"""What is wrong with a run, told from files alone, also of runs that this program has not started."""
