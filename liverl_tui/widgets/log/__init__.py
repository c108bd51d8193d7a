"""The log view: a thread reads and searches the files, a widget draws what it sends."""
