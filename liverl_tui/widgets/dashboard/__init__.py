"""The panes of the dashboard: header, GPUs or CPU, replicas, trajectories."""
