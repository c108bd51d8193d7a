"""The panes of the dashboard: GPUs or CPU, replicas, trajectories."""
