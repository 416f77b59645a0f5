"""Edits that several optimizations make. A rewriting knows no entry of the playbook."""
