"""State and numbers as words, glyphs and styles, without widgets."""
