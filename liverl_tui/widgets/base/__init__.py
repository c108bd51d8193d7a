"""What panes are built from: rows of cells, lists, prompts, bars; nothing about one screen."""
