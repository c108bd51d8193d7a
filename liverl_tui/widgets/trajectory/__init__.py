"""The view of one trajectory: blocks of text that fold, a header, a cursor and a search."""
