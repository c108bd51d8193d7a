"""Taking over a run whose backend has died: reading its journal, adopting its processes and sockets."""
