"""A process supervisor: starts, probes, restarts and stops the services of a run. It knows nothing of training."""
