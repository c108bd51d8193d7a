"""A launch that somebody else's script makes: its Ray, its LiteLLM, and the two repairs that it may need.

``cluster`` finds Ray by the processes that serve it; ``holders`` finds who really listens on the proxy's port;
``litellm`` tells how that was started and by which file; ``listing`` reads and edits that file's list of models;
``restart`` ends exactly these processes and starts the same command line again. Nothing is ever found by its name
alone, and nothing is ended that does not hold the port's own socket.
"""
