"""Token-exact sessions: agents speak a chat API, and each trial is recorded as the tokens that were really sampled.

A guest and a service: it runs beside the proxy or inside a worker of verl, imports only ``model`` and ``util``, and
keeps to the syntax and the library of Python 3.10.
"""
