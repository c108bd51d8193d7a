"""Facts about a run, one module per source. No event loop and no decisions here.

Blocking operations (files, NVML) are plain functions that the caller runs in a thread. Unknown facts are
``None``.
"""
