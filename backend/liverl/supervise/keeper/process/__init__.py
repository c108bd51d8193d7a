"""The keeper's program, a directory that Python runs; its modules are in the package ``liverl_keeper``."""
