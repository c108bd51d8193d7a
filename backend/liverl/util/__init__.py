"""Small helpers without knowledge of runs: files, paths, secrets, timing."""
