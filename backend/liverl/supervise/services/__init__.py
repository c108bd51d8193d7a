"""Services as the supervisor sees them: state machine, slots, probes, dependencies, process scans, records."""
