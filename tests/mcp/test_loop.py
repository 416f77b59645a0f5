"""An assistant that knows nothing but the tools makes a kernel faster over MCP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from mcp import Client

from tests.mcp.client import answer_of, connected, read, text_of
from tests.support.project import COUNTED
from tests.support.repo import git, isolate, make_repo


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, COUNTED)


@pytest.mark.full
def test_the_loop(repo: Path) -> None:
    async def use(client: Client) -> None:
        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            return answer_of(await client.call_tool(tool, arguments))

        (known,) = (await call("status"))["runs"]
        assert "tile-agent begin" in known["next"]

        turn = await call("begin", kernel="double.py")
        assert (turn["run"], turn["do"]) == (known["run"], "next")

        offered = await call("next")
        other = await call("next", decline="a block of another size is what helps here")
        assert other["optimization"] != offered["optimization"]
        third = await call("next", drop="nor does that")
        assert third["optimization"] != offered["optimization"]
        turn = await call("next", choose="own-idea")
        assert turn["do"] == "edit" and "prose" not in other
        whole = await call("next", full=True)
        assert whole["optimization"] == "own-idea" and whole["prose"] in whole["brief"]
        assert "rows" in (await call("status", full=True))["runs"][0]
        draft = Path(turn["file"])
        assert draft.is_relative_to(repo / "sandbox" / "runs" / turn["run"])

        source = draft.read_text()
        draft.write_text(source.replace("def double(x):", "def double(x, extra):"))
        refused = await client.call_tool("try", {"message": "one more argument"})
        assert refused.is_error

        larger = source.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 1024")
        smaller = repo.parent / "smaller.py"
        smaller.write_text(source.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 128"))
        odd = await client.call_tool("try", {"source": larger, "variant_sources": ["def f(:"]})
        assert odd.is_error and "variant-1.py cannot be a candidate" in text_of(odd)
        turn = await call(
            "try",
            message="one program instead of four",
            source=smaller.read_text().replace("= 128", "= 64"),
            variants=[str(smaller)],
            variant_sources=[larger],
        )
        assert draft.read_text() == larger
        assert (turn["row"]["iteration"], turn["row"]["status"]) == (1, "keep"), turn
        assert "BLOCK_SIZE=1024" in turn["row"]["optimization"]
        assert len(turn["attempt"]["variants"]) == 3
        assert 0 < turn["effect"]["low"] < turn["effect"]["improvement"] < turn["effect"]["high"]

        end = await call("finish")
        assert end["do"] == "done"
        assert end["speedup"] > 1
        assert git(repo, "show", f"{end['branch']}:double.py") == draft.read_text().strip()
        await _views(client, repo, end["run"])

    connected(repo, _cancelled_begin, legacy=True, python=sys.executable)
    connected(repo, use, legacy=True)


async def _cancelled_begin(client: Client) -> None:
    """Cut a call off, as a client does at its own time limit."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    seen: list[psutil.Process] = []
    with anyio.CancelScope() as scope:

        async def on_progress(_number: float, _total: float | None, line: str | None) -> None:
            if line and line.startswith("baseline"):
                children = psutil.Process().children(recursive=True)
                seen.extend(child for child in children if child.pid not in before)
                scope.cancel()

        await client.call_tool("begin", {"kernel": "double.py"}, progress_callback=on_progress)
    assert len(seen) > 1, "the command and its workers"
    _, alive = await anyio.to_thread.run_sync(psutil.wait_procs, seen, 30)
    assert alive == []


async def _views(client: Client, repo: Path, run: str) -> None:
    """What a person looks at afterwards."""
    results = answer_of(await client.call_tool("results"))
    assert results["table"] == (repo / "sandbox" / "perf_results.md").read_text()
    assert await read(client, f"tile-agent://runs/{run}/perf_results") == results["table"]
    for arguments in ({"run": run}, {"iteration": 1}):
        change = answer_of(await client.call_tool("diff", arguments))
        assert "-BLOCK_SIZE = 256\n+BLOCK_SIZE = 1024\n" in change["diff"]
    summed_up = answer_of(await client.call_tool("report", {"run": run}))
    assert [step["status"] for step in summed_up["iterations"]] == ["keep"]
    assert (await client.call_tool("stop")).is_error, "it is no more at work"
    nothing = await client.call_tool("diff", {"iteration": 2})
    assert nothing.structured_content == {
        "error": "iteration 2 has no commit; there are: 1",
        "exit_code": 2,
    }
    assert f'"run": "{run}"' in await read(client, f"tile-agent://runs/{run}")
