"""Records and exit statuses to a verdict, in words. Pure."""
