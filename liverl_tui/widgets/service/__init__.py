"""The service screen's panes, and the text about one service."""
