"""The keys of the interface: one table, from which bindings, key bar, help and palette are made."""
