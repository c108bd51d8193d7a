"""A run whose backend is not running: show its state and stop what still runs."""
