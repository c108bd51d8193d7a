"""The backend process of one run: its parts and their wiring, commands of clients, snapshots, and the run's result."""
