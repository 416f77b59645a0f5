"""Who writes candidates. A proposer hands over new source text; it never runs or judges it."""
