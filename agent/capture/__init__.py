"""A test file from the calls that a command was seen to make: pure, text in the end."""
