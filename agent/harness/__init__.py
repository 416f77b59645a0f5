"""Runs the user's pytest in isolated workers and brings back what happened, as values."""
