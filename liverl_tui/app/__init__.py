"""The Textual application: its screens, the commands of its keys, notifications, start and end."""
