"""What `check` finds in a skill: links, commands and code that do not exist or do not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.main import app
from agent.skillbook import SHIPPED
from agent.skillbook.calls import calls
from agent.skillbook.check import check
from agent.skillbook.markdown import parse
from tests.support.project import tile_agent
from tests.support.repo import write

HEAD = "---\nname: demo\ndescription: Shows.\n---\n\n"


def found(folder: Path, body: str, **files: str) -> list[str]:
    """The messages of `check`, each with its file and line, by the command line itself."""
    more = {f"demo/{name.replace('__', '/')}.md": text for name, text in files.items()}
    write(folder, {"demo/SKILL.md": HEAD + body, **more})
    done = CliRunner().invoke(app, ["skill", "check", str(folder / "demo")])
    *lines, _count = done.output.splitlines()
    assert done.exit_code == (3 if lines else 0)
    return [line.removeprefix(f"{folder}/demo/") for line in lines]


def test_a_skill_with_everything(tmp_path: Path) -> None:
    body = (
        "See [more](references/more.md#the-tables) and `references/family-*.md`.\n\n"
        "`tile-agent run` takes long; `tile-agent playbook show NAME` does not.\n\n"
        "```sh\n$ FOO=1 tile-agent run --kernel PATH --yes --json > run.json 2> run.log &\n"
        "cat run.json | jq .; tile-agent verify \\\n  --kernel 'a b.py' --json  # comment\n```\n\n"
        "```python\nx = 1\n```\n\n[elsewhere](https://example.org/x#y), [here](#demo)\n\n# Demo\n"
    )
    assert found(tmp_path, body, references__more="# More\n\n## The `tables`\n") == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[x](references/no.md)\n", "SKILL.md:6: there is no references/no.md"),
        ("a\n`references/no.md`\n", "SKILL.md:7: there is no references/no.md"),
        ("![x](assets/no.png)\n", "SKILL.md:6: there is no assets/no.png"),
        ("# A\n\n[x](#b)\n", "SKILL.md:8: SKILL.md has no heading #b"),
        (
            "`tile-agent frobnicate`\n",
            "SKILL.md:6: tile-agent frobnicate: there is no command frob",
        ),
        (
            "```sh\ntile-agent tileir x\n```\n",
            "SKILL.md:7: tile-agent tileir x: there is no command",
        ),
        (
            "```sh\na\ntile-agent run --kernel P --no\n```\n",
            "SKILL.md:8: tile-agent run --kernel P",
        ),
        ("```sh\ntile-agent run\n```\n", "SKILL.md:7: tile-agent run: Missing option '--kernel'"),
        ("`tile-agent doctor --jsn`\n", "SKILL.md:6: tile-agent doctor --jsn: No such option"),
        (
            "```bash\na && b/tile-agent --frob\n```\n",
            "SKILL.md:7: tile-agent --frob: No such option",
        ),
        ("```sh\ntile-agent stop 'x\n```\n", "SKILL.md:6: the shell would not take it: No closing"),
        ("```python\na\nb c\n```\n", "SKILL.md:8: not Python: invalid syntax"),
    ],
)
def test_what_does_not_exist(tmp_path: Path, body: str, message: str) -> None:
    (line,) = found(tmp_path, body)
    assert line.startswith(message)


def test_references_are_checked_and_must_be_led_to(tmp_path: Path) -> None:
    lines = found(
        tmp_path,
        "[a](references/a.md)\n",
        references__a="[b](b.md)\n\n`tile-agent nothing`\n",
        references__b="[out](../../other.md)\n",
        references__lost="x\n",
    )
    assert lines == [
        "references/a.md:3: tile-agent nothing: there is no command nothing",
        "references/b.md:1: references/../../other.md is outside the skill, and stays behind",
        "SKILL.md:1: nothing leads to references/lost.md",
    ]


def test_values_of_options_are_checked_in_whole_calls(tmp_path: Path) -> None:
    (line,) = found(tmp_path, "```sh\ntile-agent run --kernel P --max-iterations many\n```\n")
    assert "'--max-iterations'" in line


def test_calls_are_taken_out_of_a_shell() -> None:
    text = (
        "A=1 B=2 x/tile-agent doctor --json>out 2>>err\n"
        "echo tile-agent stop\n"
        "true && tile-agent status \\\n --json; (tile-agent stop)\n"
        "tile-agent bench --sizes 1,2 'a > b'\n"
    )
    assert list(calls(text)) == [
        (0, ("doctor", "--json")),
        (2, ("status", "--json")),
        (2, ("stop",)),
        (4, ("bench", "--sizes", "1,2", "a > b")),
    ]


def test_lines_count_the_front_matter() -> None:
    page = parse(HEAD + "a\n`b` [c](d)\n\n| `e` |\n|--|\n| `f` |\n")
    assert [(c.line, c.text) for c in page.code] == [(7, "b"), (9, "e"), (11, "f")]
    assert page.links == [(7, "d")]


def test_a_folder_without_a_skill(tmp_path: Path) -> None:
    assert [p.message for p in check(tmp_path, lambda *_: None)] == ["there is no SKILL.md"]
    done = tile_agent(tmp_path, "skill", "check", str(tmp_path), "--json")
    assert done.code == 2
    assert done.json["error"] == f"there is no SKILL.md in {tmp_path}, nor in a folder of it"


def test_the_skills_that_ship_hold() -> None:
    done = tile_agent(SHIPPED.parents[1], "skill", "check", "--json")
    assert done.json["problems"] == []
    assert done.code == 0
    assert {Path(f).name for f in done.json["skills"]} == {
        p.parent.name for p in SHIPPED.glob("*/SKILL.md")
    }


@pytest.mark.parametrize("skill", ["optimize-cutile-kernel", "optimize-triton-kernel"])
def test_a_skill_names_what_makes_tests_and_what_hands_a_run_over(skill: str) -> None:
    text = (SHIPPED / skill / "SKILL.md").read_text(encoding="utf-8")
    for named in ("tile-agent capture", "--capture", "tile-agent finalize", "tile-agent report"):
        assert named in text
    assert "`resumed` true" in text and "`unjudged`" in text
