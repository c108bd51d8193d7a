"""The other hosts of a run: ``cluster`` is what they read, ``join`` starts Ray on one of them, ``refusals`` says why a
start of Ray failed, and ``states`` tells the run's own host how far each is."""
