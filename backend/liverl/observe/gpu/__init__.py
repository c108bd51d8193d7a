"""GPUs: sampling through NVML, and which service holds which GPU."""
