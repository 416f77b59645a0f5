"""Analyses that both kernel languages share."""
