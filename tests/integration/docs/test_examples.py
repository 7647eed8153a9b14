"""Every program in examples/ runs against a cluster, by the command that its README states.

The client in Node has its test with the page that describes it: packaging/test_clients_page.py.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from tests.support.browser import Page, browser_page, find_browser
from tests.support.engine.model import MODEL, TRAINED
from tests.support.processes.command import run
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases
from tests.support.wait import eventually

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text()
PAGE = EXAMPLES / "web" / "index.html"
SECONDS = 60.0
"""Of Go for its whole standard library, the first time; all else takes one or two."""
USAGE = r"\(\d+ \+ \d+ tokens\)"
USE_OF_API = """
(async () => {
  const server = { url: process.argv[1], key: "" };
  const [model] = await listModels(server);
  const messages = [{ role: "user", content: "My name is Ada. What is my name?" }];
  const request = { model, messages, temperature: 0, max_tokens: 32 };
  const chunks = [];
  for await (const chunk of streamChat(server, request)) chunks.push(chunk);
  console.log(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""));
  console.log(chunks.at(-1).usage.total_tokens > 0);
  await streamChat(server, { ...request, model: "absent" }).next();
})().catch((error) => console.log(error.message));
"""


@pytest.fixture
async def cluster(local_cluster: Callable[..., Awaitable[LocalCluster]]) -> LocalCluster:
    """What `baton up` serves, by one worker, to pages of every origin."""
    settings = {"engine.dtype": "float32", "http.cors_origins": "*"}
    return await local_cluster(
        engine="torch", model=TRAINED, prefill=0, decode=0, combined=1, settings=settings
    )


def command_of(file: str) -> list[str]:
    """Return the command in an example's row of the README."""
    row = rf"^\| \[{re.escape(file)}\]\({re.escape(file)}\) \|.*\| `([^`]+)` \|$"
    (command,) = re.findall(row, README, re.M)
    return shlex.split(command)


async def printed(*command: str) -> list[str]:
    """Return the lines that a program prints, which has nothing to complain of."""
    if command[0] == "python":
        command = (sys.executable, *command[1:])
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "OPENAI_"))}
    environment = {**inherited, "PYTHONPATH": str(ROOT)}
    code, out, err = await run(*command, directory=ROOT, seconds=SECONDS, environment=environment)
    assert (code, err) == (0, "")
    return out.splitlines()


def test_the_readme_lists_every_example() -> None:
    programs = {
        path.relative_to(EXAMPLES).as_posix()
        for suffix in ("py", "js", "go", "html")
        for path in EXAMPLES.glob(f"*/*.{suffix}")
    }
    assert set(re.findall(r"^\| \[([^\]]+)\]", README, re.M)) == programs


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("python/*.py")))
async def test_python_programs_describe_themselves(file: str) -> None:
    lines = await printed(*command_of(f"python/{file}"), "--help")
    assert lines[0].startswith(f"usage: {file} [-h] [")


async def test_python_over_grpc(cluster: LocalCluster) -> None:
    lines = await printed(*command_of("python/chat.py"), cluster.frontend.address)
    assert [line for line in lines if line.startswith(">")] == [
        "> Please remember: my name is Ada.",
        "> What is my name?",
    ]
    assert lines[-1] == "Your name is Ada."


async def test_python_over_http(cluster: LocalCluster) -> None:
    *story, usage, animal = await printed(
        *command_of("python/openai_chat.py"), f"{cluster.http}/v1"
    )
    assert any(story)
    assert re.fullmatch(USAGE, usage)
    assert re.search(r", a (fox|owl|whale), is \d+ years old$", animal)


async def test_python_with_tools(cluster: LocalCluster) -> None:
    call, *answer = await printed(*command_of("python/tools.py"), f"{cluster.http}/v1")
    assert re.fullmatch(r"count_fruit\({'kind': '(\w+)'}\) -> There are \d+ \1\.", call)
    assert any(answer)


async def test_python_with_webhooks(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases, tmp_path: Path
) -> None:
    settings = {
        "state.url": SecretStr(await databases.migrated()),
        "files.url": (tmp_path / "files").as_uri(),
        "webhooks.enabled": True,
        "webhooks.allow": ("127.0.0.0/8",),
    }
    cluster = await local_cluster(own=True, prefill=0, decode=0, combined=1, settings=settings)
    async with httpx.AsyncClient() as client:

        async def has_database() -> bool:
            return (await client.get(f"{cluster.http}/v1/webhook_endpoints")).status_code == 200

        await eventually(has_database)
        told, answer, *_ = await printed(*command_of("python/webhooks.py"), f"{cluster.http}/v1")
        left = (await client.get(f"{cluster.http}/v1/webhook_endpoints")).json()["data"]
    assert (told, left) == ("batch.completed", [])
    assert answer.startswith("request-1 ")


async def test_go(cluster: LocalCluster) -> None:
    if shutil.which("go") is None:
        pytest.skip("not installed: go")
    *command, question = command_of("go/chat.go")
    command += ["-url", f"{cluster.http}/v1"]
    *answer, usage = await printed(*command, question)
    assert any(answer)
    assert re.fullmatch(USAGE, usage)

    absent = (*command, "-model", "absent", question)
    code, out, err = await run(*absent, directory=ROOT, seconds=SECONDS)
    assert (code, out) == (1, "")
    assert err.startswith("error: 404 Not Found: model 'absent' does not exist")


async def test_the_functions_of_the_page(cluster: LocalCluster) -> None:
    if shutil.which("node") is None:
        pytest.skip("not installed: node")
    (functions,) = re.findall(r'<script id="api">\n(.*?)</script>', PAGE.read_text(), re.S)
    answer, counted, error = await printed(
        "node", "--eval", functions + USE_OF_API, f"{cluster.http}/v1"
    )
    assert "Ada" in answer
    assert counted == "true"
    assert error.startswith("model 'absent' does not exist")


async def test_the_page_in_a_browser(cluster: LocalCluster, tmp_path: Path) -> None:
    if (browser := find_browser()) is None:
        pytest.skip("not installed: chromium")
    url = f"{PAGE.as_uri()}?url={cluster.http}/v1"
    async with browser_page(browser, tmp_path, url) as page:
        chat = Chat(page)
        assert await eventually(lambda: chat.read("model", "value")) == MODEL

        first = await chat.ask("Please remember: my name is Ada.")
        second = await chat.ask("What is my name?")
        assert len(await chat.messages()) == 4
        prompts = [int(status.partition(" + ")[0]) for status in (first, second)]
        assert prompts[1] > prompts[0]  # the second has the conversation so far

        # A story that is complete before the click is told again.
        await eventually(chat.is_stopped)
        assert (await chat.messages())[-1]

        await chat.click("clear")
        assert await chat.messages() == []


class Chat:
    """A user of the page."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def read(self, element: str, name: str) -> object:
        """Return a property of an element; None while the page has no such element."""
        return await self._page.run(f"document.querySelector('#{element}')?.{name}")

    async def messages(self) -> list[str]:
        texts = "[...document.querySelectorAll('.message')].map((one) => one.textContent)"
        return list(await self._page.run(texts))

    async def click(self, element: str) -> None:
        await self._page.run(f"document.querySelector('#{element}').click()")

    async def ask(self, question: str) -> str:
        """Send a message; return the status once the answer has ended."""
        script = f"document.querySelector('#question').value = {json.dumps(question)}"
        await self._page.run(script)
        await self.click("send")
        await eventually(lambda: self._page.run("document.querySelector('#stop').hidden"))
        assert all(await self.messages())
        return str(await self.read("status", "textContent"))

    async def is_stopped(self) -> bool:
        """Ask for a story, stop it at its first words, and return whether it was not complete."""
        await self._page.run(
            "new MutationObserver((_, observer) => {"
            "  if (!document.querySelector('.message:last-child').textContent) return;"
            "  observer.disconnect(); document.querySelector('#stop').click();"
            "}).observe(document.querySelector('#chat'), {childList: true, subtree: true})"
        )
        return await self.ask("Tell me a story about a fox") == "stopped"
