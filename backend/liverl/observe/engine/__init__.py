"""Load and activity of inference engines, from their ``/metrics`` and logs."""
