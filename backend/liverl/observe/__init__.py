"""Facts about a run: one module per source, no event loop, nothing that decides.

What blocks (files, NVML) is a plain function that the caller runs in a thread. Absent facts are ``None``.
"""
