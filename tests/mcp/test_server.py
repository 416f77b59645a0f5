"""The server over stdio, driven by the client of the official SDK."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from agent.errors import ExitCode
from tests.mcp.client import answer_of, connected, read, text_of
from tests.support.pages import ROOT, blocks, rows
from tests.support.project import KERNEL, PROJECT
from tests.support.repo import changed, isolate, make_repo, snapshot

GUIDE = ROOT / "docs" / "mcp.md"
VERBS = ["begin", "next", "try", "finish", "stop"]
VIEWS = [
    "status", "results", "diff", "report",
    "doctor", "classify", "diagnose", "plan", "verify", "bench", "lint",
    "playbook_list", "playbook_show",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, PROJECT)


def test_what_a_client_sees(tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        assert client.instructions and "`begin`" in client.instructions
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == VERBS + VIEWS
        for name, tool in tools.items():
            assert tool.description and tool.output_schema and tool.annotations
            assert tool.annotations.read_only_hint is (name in VIEWS)
            assert tool.annotations.destructive_hint is False
            for parameter, schema in tool.input_schema["properties"].items():
                assert schema.get("description"), f"{name}: {parameter}"
        assert tools["begin"].input_schema["required"] == ["kernel"]

    connected(tmp_path, use)


def test_the_views_change_nothing(repo: Path) -> None:
    async def use(client: Client) -> None:
        assert "backends" in answer_of(await client.call_tool("doctor"))
        assert answer_of(await client.call_tool("status")) == {"runs": []}
        kernel = {"kernel": "double.py"}
        assert answer_of(await client.call_tool("classify", kernel))["backend"] == "triton"
        assert (await client.call_tool("lint", kernel)).is_error  # its rules are cuTile's
        planned = answer_of(await client.call_tool("plan", kernel))
        assert "block-size" in json.dumps(planned)
        verified = answer_of(await client.call_tool("verify", kernel))
        assert verified["correct"] is True, verified
        timed = answer_of(await client.call_tool("bench", kernel))
        assert [record["latency_ms"] > 0 for record in timed["records"]] == [True], timed
        listed = answer_of(await client.call_tool("playbook_list", {"backend": "triton"}))
        name = listed["optimizations"][0]["name"]
        shown = answer_of(await client.call_tool("playbook_show", {"name": name}))
        page = await read(client, f"tile-agent://playbook/{name}")
        assert shown["prose"] in page and shown["after"].rstrip() in page
        assert await read(client, "tile-agent://runs") == '{\n  "runs": []\n}'

    before = snapshot(repo)
    connected(repo, use)
    assert changed(before, snapshot(repo)) == set()


def test_tests_that_fail_are_an_answer(tmp_path: Path) -> None:
    """Not an error: the tests were run, and what they say is what was asked for."""
    wrong = KERNEL.replace("2 * tl.load", "3 * tl.load")
    test = PROJECT["tests/test_double.py"].replace("x = torch.ones(1024)", "assert not double")
    repo = make_repo(tmp_path, PROJECT | {"double.py": wrong, "tests/test_double.py": test})

    async def use(client: Client) -> None:
        verified = answer_of(await client.call_tool("verify", {"kernel": "double.py"}))
        assert verified["correct"] is False
        assert "test_double_triton" in verified["reason"], verified
        timed = answer_of(await client.call_tool("bench", {"kernel": "double.py"}))
        assert timed["correct"] is False
        assert "test_perf_double_triton" in timed["reason"], timed

    connected(repo, use)


def test_an_error_says_how_to_mend_it(repo: Path, tmp_path: Path) -> None:
    async def use(client: Client) -> None:
        async def refused(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert result.structured_content == {"error": text_of(result), "exit_code": 2}
            return text_of(result)

        inside = {"repository": str(repo)}
        odd = await refused("begin", kernel="double.py", max_iteration=1, **inside)
        assert odd.endswith(
            "no argument max_iteration, and was not called: did you mean max_iterations?"
        )
        assert "it takes repository, run" in await refused("finish", fast=True)
        missing = await refused("begin", kernel="nothing.py", **inside)
        assert missing.startswith("nothing.py: no such file; name the Python file")
        assert "`git init`" in await refused("status")
        assert "is no directory" in await refused("status", repository="nowhere")
        assert "begin one on a kernel" in await refused("diff", **inside)
        assert "see `tile-agent playbook list`" in await refused("playbook_show", name="--json")
        wrong = await client.call_tool("begin", {"kernel": "double.py", "max_iterations": 0})
        assert wrong.is_error and "greater than or equal to 1" in text_of(wrong)
        with pytest.raises(MCPError, match="no optimization is called"):
            await read(client, "tile-agent://playbook/nothing")

    connected(tmp_path, use)


def test_without_the_sdk_the_extra_is_named() -> None:
    script = "import sys; sys.modules['mcp'] = None; from agent.cli import main; main()"
    end = subprocess.run(
        [sys.executable, "-c", script, "mcp"], capture_output=True, text=True, check=False
    )
    assert end.returncode == ExitCode.USAGE
    assert end.stderr.startswith("tile-agent: the MCP server needs the package mcp")
    assert "pip install 'tile-agent[mcp]'" in end.stderr
    assert end.stderr.count("\n") == 1


def test_the_guide_fits_the_server(tmp_path: Path) -> None:
    """Its settings parse and start this server, and its tables list what there is."""
    entries = [json.loads(block) for block in blocks(GUIDE, "json")]
    entries += [tomllib.loads(block) for block in blocks(GUIDE, "toml")]
    assert len(entries) == 4
    for entry in entries:
        ((_, servers),) = entry.items()
        words = [servers["tile-agent"]["command"], *servers["tile-agent"]["args"]]
        assert words[:2] == ["tile-agent", "mcp"]
        assert words[2:] in ([], ["--repository", "${workspaceFolder}"])

    async def use(client: Client) -> None:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert [row[0] for row in rows(GUIDE, "tool")] == tools
        resources = [found.uri for found in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        resources += [template.uri_template for template in templates]
        assert [row[0].strip("`") for row in rows(GUIDE, "resource")] == resources

    connected(tmp_path, use)
