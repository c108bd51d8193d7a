"""Which records and which exits a verdict is about: those of a live run's services, and of logs that were found."""
