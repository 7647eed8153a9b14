"""Run Codex against a cluster: `make interop-codex`; one line per case.

The simulated engine writes no calls of tools. So the case with a tool is of a provider's model,
whose upstream says what Codex shall do: requests and events of responses are the same for all
models.

python -m tests.interop.codex MODULES    MODULES holds what npm installed from package.json
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from baton.cli.cluster.local.files.model_files import bundled_model
from bench.harness.cluster import Cluster, cluster
from tests.support.doubles.upstream import (
    Exchange,
    ScriptedUpstream,
    delta,
    finish,
    says,
    usage,
)
from tests.support.wait import eventually

SETTINGS = {
    "BATON_TELEMETRY_LOG_LEVEL": "error",
    "BATON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "1000000",
}
CONTEXT = 32_768
"""Codex's instructions and tools alone are about 9,000 tokens."""
OUTPUT = 64
SCRIPTED = "scripted"
SECONDS = 240
CUT = "Incomplete response returned, reason: max_output_tokens"
FILE, MARK, SAID = "made-by-codex", "baton-was-here", "All done."
CONFIGURATION = """
model = "{model}"
model_provider = "baton"
[model_providers.baton]
name = "Baton"
base_url = "http://{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Codex:
    """Codex as npm installed it.

    Args:
        program: its command.
        up: the cluster.
    """

    def __init__(self, program: Path, up: Cluster) -> None:
        self._program = program
        self._up = up

    async def run(self, model: str, directory: Path) -> str:
        """Return what it says last to a task in a directory."""
        home = directory / "home"
        home.mkdir()
        configuration = CONFIGURATION.format(model=model, address=self._up.http)
        (home / "config.toml").write_text(configuration)
        last = directory / "last.txt"
        command = [
            str(self._program),
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "--output-last-message",
            str(last),
            "Make the file",
        ]
        ran = await asyncio.to_thread(_ran, command, directory, home)
        if ran.returncode:
            raise AssertionError(f"codex ended with {ran.returncode}: {ran.stderr[-600:]}")
        return last.read_text()


def _ran(command: list[str], directory: Path, home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "CODEX_HOME": str(home), "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


async def it_reads_an_answer_that_is_cut(codex: Codex, model: str, directory: Path) -> str:
    """Codex gets an answer of the simulated engine, which never ends by itself."""
    try:
        await codex.run(model, directory)
    except AssertionError as error:
        assert CUT in str(error), error
        return CUT
    raise AssertionError("codex took it for a whole answer")


async def it_runs_its_tool(codex: Codex, upstream: ScriptedUpstream, directory: Path) -> str:
    """Codex is told to call its shell, runs it, and sends back what that printed."""

    async def answer(exchange: Exchange) -> None:
        results = [one for one in exchange.body["messages"] if one["role"] == "tool"]
        if results:
            await says([SAID])(exchange)
            return
        name, arguments = _shell(exchange.body["tools"])
        call = {"index": 0, "id": "call_1", "type": "function"}
        function = {"name": name, "arguments": json.dumps(arguments)}
        await exchange.head()
        await exchange.events(delta(tool_calls=[{**call, "function": function}]))
        await exchange.events(finish("tool_calls"), usage(9, 9), "[DONE]")
        await exchange.end()

    upstream.answer = answer
    said = await codex.run(SCRIPTED, directory)
    assert said.strip() == SAID, said
    assert (directory / FILE).read_text().strip() == MARK
    last = upstream.exchanges[-1].body["messages"]
    (result,) = [message for message in last if message["role"] == "tool"]
    assert MARK in result["content"], result
    called = [message for message in last if message.get("tool_calls")]
    return f"{called[0]['tool_calls'][0]['function']['name']} ran; then {said.strip()!r}"


def _shell(tools: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return a call of Codex's shell, which has another name in each of its releases."""
    script = f"echo {MARK} | tee {FILE}"
    for tool in tools:
        function = tool["function"]
        fields = function["parameters"]["properties"]
        for field in ("cmd", "command"):
            if field in fields:
                is_list = fields[field].get("type") == "array"
                return function["name"], {field: ["sh", "-c", script] if is_list else script}
    raise AssertionError(f"no shell among {[tool['function']['name'] for tool in tools]}")


def longer(scratch: Path) -> Path:
    """Return a model with Baton Tiny's tokenizer and a longer context."""
    made = scratch / "long"
    made.mkdir()
    for path in bundled_model().glob("*.json"):
        shutil.copy(path, made)
    described = json.loads((made / "config.json").read_text())
    described["max_position_embeddings"] = CONTEXT
    (made / "config.json").write_text(json.dumps(described))
    (made / "generation_config.json").write_text(json.dumps({"max_new_tokens": OUTPUT}))
    return made


async def provide(up: Cluster, upstream: ScriptedUpstream) -> None:
    """Make the upstream's model one of the cluster."""
    baton = str(Path(sys.executable).with_name("baton"))
    model = f"{SCRIPTED}=x,context=32768,output=2048"
    command = (baton, "providers", "set", "codex", "--http", "--url", upstream.url)
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": up.runtime}
    await asyncio.to_thread(
        subprocess.run, (*command, "--model", model), timeout=60, env=environment, check=True
    )
    import httpx

    async with httpx.AsyncClient(base_url=f"http://{up.http}/v1") as http:

        async def listed() -> bool:
            return SCRIPTED in (await http.get("/models")).text

        await eventually(listed)


async def main(program: Path) -> int:
    failures = 0
    async with AsyncExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-codex-"))
        model = longer(Path(scratch))
        up = await stack.enter_async_context(
            cluster("--engine=sim", f"--model={model}", settings=SETTINGS)
        )
        upstream = await stack.enter_async_context(ScriptedUpstream())
        await provide(up, upstream)
        codex = Codex(program, up)
        cases = {
            "an answer that is cut": partial(it_reads_an_answer_that_is_cut, codex, up.model),
            "its tool": partial(it_runs_its_tool, codex, upstream),
        }
        for name, case in cases.items():
            with tempfile.TemporaryDirectory(prefix="baton-codex-") as directory:
                try:
                    print(f"ok      {name}: {await case(Path(directory))}", flush=True)
                except Exception as error:  # noqa: BLE001 - the other case is of interest, too
                    failures += 1
                    print(f"FAILED  {name}: {type(error).__name__}: {error}"[:900], flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]).resolve() / "node_modules/.bin/codex")))
