"""Cases of the fault table (``tests/bench/faults.py``), one module per area."""
