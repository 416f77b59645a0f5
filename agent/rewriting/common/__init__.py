"""Edits that serve both kernel languages."""
