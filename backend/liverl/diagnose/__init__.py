"""Symptoms: what is wrong with a run, the evidence, the cause, and what to do about it."""
