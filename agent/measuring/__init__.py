"""How fast one kernel is against another: protocol, statistics, verdict. Pure."""
