"""Why processes end: records of logs and exit statuses to one cause with its evidence and fix, by a catalogue."""
