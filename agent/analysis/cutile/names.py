"""How cuda.tile is called, whatever a file calls it."""

CT = "cuda.tile."
