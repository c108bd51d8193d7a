"""What concerns the terminal itself: cells, keys, clipboard, title; and every private name of Textual."""
