"""Code that runs in verl's own Python environment; never imported by the backend.

These modules may import torch, transformers, ray and verl, and of liverl only modules that need nothing but
the standard library, msgspec and aiohttp. They use Python 3.10 syntax.
"""
