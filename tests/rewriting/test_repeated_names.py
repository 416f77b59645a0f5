"""What an edit assigns before each of several launches it assigns once, where that is the same."""

from __future__ import annotations

import textwrap

import pytest

from agent.rewriting.common.repeated_names import with_one_assignment_each

BEFORE = """
def launch(x, wide):
    if wide:
        a[grid](x)
    else:
        b[grid](x)
    c[grid](x)
"""
SMS = "n_sms = count(device)"


def once(after: str, before: str = BEFORE) -> str:
    return with_one_assignment_each(before, textwrap.dedent(after))


def test_one_that_is_run_before_the_others_does_for_all() -> None:
    """The blank lines and comments above the others stay."""
    assert once(f"""
            def launch(x):
                {SMS}
                a[n_sms](x)

                # The second.
                {SMS}
                b[n_sms](x)
                for each in x:
                    {SMS}
                    c[n_sms](each)
        """) == textwrap.dedent(f"""
            def launch(x):
                {SMS}
                a[n_sms](x)

                # The second.
                b[n_sms](x)
                for each in x:
                    c[n_sms](each)
        """)


def test_branches_of_one_choice_have_it_above_the_choice() -> None:
    """Comments right above the choice stay there."""
    assert once(f"""
            def launch(x, wide):
                y = x

                # Whole rows or not.
                if wide:
                    {SMS}
                    a[n_sms](x)
                elif y:
                    {SMS}
                    b[n_sms](x)
                else:
                    {SMS}
                    c[n_sms](x)
        """) == textwrap.dedent(f"""
            def launch(x, wide):
                y = x

                {SMS}
                # Whole rows or not.
                if wide:
                    a[n_sms](x)
                elif y:
                    b[n_sms](x)
                else:
                    c[n_sms](x)
        """)


@pytest.mark.parametrize(
    "text",
    [
        f"""
def launch(x, device):
    {SMS}
    a[n_sms](x)
    device = other(device)
    {SMS}
    b[n_sms](x)
""",
        f"""
def launch(x):
    with on(x):
        {SMS}
        a[n_sms](x)
    {SMS}
    b[n_sms](x)
""",
        f"""
def launch(x):
    {SMS}
    a[n_sms](x)
    with on(x):
        {SMS}
        b[n_sms](x)
""",
        f"""
def launch(x):
    for each in x:
        {SMS}
        a[n_sms](each)
    {SMS}
    b[n_sms](x)
""",
        f"""
def launch(x):
    {SMS}
    a[n_sms](x)
    n_sms = 1
    b[n_sms](x)
    {SMS}
    c[n_sms](x)
""",
        f"""
def launch(x):
    {SMS}
    a[n_sms](x)


def other(x):
    {SMS}
    b[n_sms](x)
""",
    ],
    ids=[
        "what it reads changes",
        "another device",
        "another device later",
        "a loop",
        "another value",
        "two functions",
    ],
)
def test_where_that_may_not_be_the_same_each_has_its_own(text: str) -> None:
    assert once(text) == text


def test_what_the_author_wrote_twice_stays() -> None:
    text = f"def f(x):\n    {SMS}\n    a(n_sms)\n    {SMS}\n    b(n_sms)\n"
    assert once(text, text) == text
