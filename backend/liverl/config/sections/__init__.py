"""The sections of config.yaml as structs: LiveRL's own, those of liverl-tui, and those for verl and Ray."""
