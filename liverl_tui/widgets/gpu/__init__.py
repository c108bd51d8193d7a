"""The GPU screen: the list of GPUs, and everything about one of them."""
