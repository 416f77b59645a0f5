"""Programs for people who change tile-agent; not part of the package."""
