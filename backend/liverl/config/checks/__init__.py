"""Rules between configuration keys: ``managed`` for every run, ``verl`` for topology verl and environments."""
