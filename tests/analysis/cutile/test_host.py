"""Numbers that host code always gives: through names, expressions, choices and dictionaries."""

from __future__ import annotations

import pytest

from agent.analysis.cutile.host import constant
from agent.syntax import Source

CONFIG = 'CONFIG = {"tile": 64, "other": 2**7}\n'


def known(text: str) -> object:
    """What `launch` is given."""
    source = Source(text)
    [call] = (call for call in source.calls if source.code(call.func) == "launch")
    found = constant(source, call.args[0].value)
    return found and found.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("launch(1 << 6)", 64),
        ("launch(2**4)", 16),
        ("launch(2**4 - 0.5)", 15.5),
        ("IS_TUNED = False\nlaunch(128 if IS_TUNED else 64)", 64),
        ("launch(128 if is_tuned() else 64)", None),
        ("def run(is_tuned=False):\n    launch(128 if is_tuned else 64)", None),
        (f'{CONFIG}launch(CONFIG["tile"])', 64),
        (f'{CONFIG}size = CONFIG["other"]\nprint(CONFIG)\nf"{{CONFIG}}"\nlaunch(size)', 128),
        (f'{CONFIG}tuned = False\nc = search() if tuned else CONFIG\nlaunch(c["tile"])', 64),
        (f'{CONFIG}grid(CONFIG.get("tile"), **CONFIG)\nlaunch((CONFIG["tile"]))', 64),
        (f'{CONFIG}c = search() if tuned() else CONFIG\nlaunch(c["tile"])', None),
        (f'{CONFIG}launch(CONFIG["missing"])', None),
        (f"{CONFIG}launch(CONFIG[key])", None),
        (f'{CONFIG}CONFIG["tile"] = 32\nlaunch(CONFIG["tile"])', None),
        (f'{CONFIG}CONFIG["tile"], x = 32, 1\nlaunch(CONFIG["tile"])', None),
        (f'{CONFIG}CONFIG["tile"] *= 2\nlaunch(CONFIG["tile"])', None),
        (f'{CONFIG}CONFIG.update(tile=32)\nlaunch(CONFIG["tile"])', None),
        (f'{CONFIG}alias = CONFIG\nalias["tile"] = 32\nlaunch(CONFIG["tile"])', None),
        (f'{CONFIG}adapt(CONFIG)\nlaunch(CONFIG["tile"])', None),
        ('launch({**given(), "tile": 64}["tile"])', None),
        ('launch({"tile": 32, "tile": 64}["tile"])', 64),
    ],
)
def test_what_the_file_says_of_a_number(text: str, value: object) -> None:
    assert known(text) == value
