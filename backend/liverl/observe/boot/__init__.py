"""How far the start of a service is, and the facts it prints meanwhile, from its log."""
