"""Harbor's tasks as trials: its settings, and the process in Harbor's own environment that runs them."""
