"""verl seen from outside: its replicas, what they do, and the directory of the Ray that serves them."""
