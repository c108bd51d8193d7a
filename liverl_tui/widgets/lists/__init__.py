"""The lists of alerts and of events, which whole screens show."""
