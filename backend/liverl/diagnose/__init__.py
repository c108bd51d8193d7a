"""Symptoms: what is wrong with a run, by what evidence, why, and what to do about it."""
