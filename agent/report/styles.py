"""How a verdict looks on a terminal, as rich names it."""

STYLES = {
    "keep": "bold green",
    "revert": "yellow",
    "crash": "bold red",
    "held": "bold magenta",
    "tampered": "bold red",
}
