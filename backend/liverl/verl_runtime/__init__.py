"""What runs inside verl's own Python environment: never imported by the backend.

These modules may import torch, transformers, ray and verl, and of our own code only the light modules that
need nothing but the standard library, msgspec and aiohttp. They keep to the syntax of Python 3.10.
"""
