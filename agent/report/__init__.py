"""What people and programs read: the table, the summary, JSON. All of it derived from a `Run`."""
