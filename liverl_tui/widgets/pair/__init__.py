"""The view of two trials of one prompt beside each other, turn by turn."""
