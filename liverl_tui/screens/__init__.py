"""Whole screens: the dashboard, and what is opened from it."""
