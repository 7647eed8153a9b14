"""docs/clients.md does what it says: its examples run, its commands generate code."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.command import run

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "node"
PAGE = (ROOT / "docs" / "clients.md").read_text()
ADDRESS = "127.0.0.1:50051"
MODEL = "baton-tiny"
NPM_SECONDS = 60.0
CHAT_SECONDS = 30.0
GENERATE_SECONDS = 60.0


def blocks(heading: str, language: str) -> list[str]:
    """Return the code blocks of a section of the page."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```", section, re.M | re.S)


@pytest.fixture
async def node_example(tmp_path: Path) -> Path:
    """The example with its packages; skips where npm cannot install them, unless CI is true."""
    directory = tmp_path / "node"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("node_modules"))
    problem = "there is no npm"
    if shutil.which("npm") is not None and shutil.which("node") is not None:
        npm = ("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--fetch-retries=0")
        code, _, problem = await run(*npm, directory=directory, seconds=NPM_SECONDS)
        if code == 0:
            return directory
    if os.environ.get("CI") == "true":
        pytest.fail(f"npm cannot install the example: {problem}")
    pytest.skip(f"npm cannot install the example: {problem}")


async def test_the_python_example_prints_an_answer(
    local_cluster: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = await local_cluster()
    (model,) = await cluster.client.models()
    (example,) = blocks("Python", "python")
    # Baton Tiny ends its answer; the model of tests would go on to its context's end.
    example = example.replace(f'"{MODEL}"', f'"{model.name}", max_tokens=16')
    example = example.replace(ADDRESS, cluster.frontend.address)
    await asyncio.to_thread(exec, example, {})
    assert capsys.readouterr().out


async def test_node_streams_a_chat_by_the_descriptor_set(
    node_example: Path, published: Path, local_cluster: Callable[..., Any]
) -> None:
    cluster = await local_cluster()
    (model,) = await cluster.client.models()
    (commands,) = blocks("Node", "sh")
    command = shlex.split(commands.splitlines()[-1])
    assert command[:2] == ["node", "chat.js"]
    question = command[-1]
    there = {
        "../../dist/baton-v1.binpb": str(published / "baton-v1.binpb"),
        ADDRESS: cluster.frontend.address,
        MODEL: model.name,
    }
    command = [there.get(word, word) for word in command]

    code, out, err = await run(*command, directory=node_example, seconds=CHAT_SECONDS)
    assert (code, err) == (0, "")
    stream = cluster.client.chat(question, model=model.name, temperature=0, max_tokens=128)
    answer = await stream.answer()
    assert answer.usage.output_tokens > 0
    tokens = f"{answer.usage.prompt_tokens} + {answer.usage.output_tokens} tokens"
    assert out == f"{answer.text}\n({tokens})\n"

    command[command.index(model.name)] = "absent"
    code, out, err = await run(*command, directory=node_example, seconds=CHAT_SECONDS)
    assert (code, out) == (1, "")
    assert err.startswith("NOT_FOUND: model 'absent' does not exist")


@pytest.mark.parametrize(
    ("heading", "programs", "made"),
    [
        (
            "Go",
            ("protoc", "protoc-gen-go", "protoc-gen-go-grpc"),
            ("common.pb.go", "inference.pb.go", "inference_grpc.pb.go"),
        ),
        (
            "Java",
            ("protoc", "grpc_java_plugin"),
            ("Common.java", "Inference.java", "InferenceServiceGrpc.java"),
        ),
        pytest.param(
            "TypeScript",
            ("npx",),
            ("any_pb.ts", "common_pb.ts", "conversations_pb.ts", "inference_pb.ts", "status_pb.ts"),
            marks=pytest.mark.soak,
        ),
    ],
)
async def test_the_commands_generate_code(
    heading: str, programs: tuple[str, ...], made: tuple[str, ...], published: Path, tmp_path: Path
) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    shutil.copytree(published, tmp_path / "dist")
    script = blocks(heading, "sh")[0]
    code, _, err = await run("bash", "-euc", script, directory=tmp_path, seconds=GENERATE_SECONDS)
    assert code == 0, err
    assert {path.name for path in (tmp_path / "gen").rglob("*") if path.is_file()} == set(made)
