"""A language model as the writer of candidates. Its library is optional: `tile-agent[model]`."""
