"""What a release publishes for other languages, and the client of one of them that uses it."""

import asyncio
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "node"
NPM_SECONDS = 60.0
CHAT_SECONDS = 30.0


def publish(target: Path) -> Path:
    script = ROOT / "scripts" / "publish_protos.py"
    subprocess.run([sys.executable, str(script), str(target)], check=True, timeout=60)
    return target


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def descriptors(published: Path) -> descriptor_pb2.FileDescriptorSet:
    return descriptor_pb2.FileDescriptorSet.FromString((published / "baton-v1.binpb").read_bytes())


def test_the_public_protos_are_published_and_no_others(
    descriptors: descriptor_pb2.FileDescriptorSet, published: Path
) -> None:
    names = [file.name for file in descriptors.file]
    assert names == ["baton/v1/common.proto", "baton/v1/inference.proto"]
    with tarfile.open(published / "baton-v1-protos.tar.gz") as archive:
        assert archive.getnames() == names
        for name in names:
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == (ROOT / "protos" / name).read_bytes()


def test_comments_survive(descriptors: descriptor_pb2.FileDescriptorSet) -> None:
    for file in descriptors.file:
        comments = [place.leading_comments for place in file.source_code_info.location]
        assert sum(bool(comment) for comment in comments) > len(file.message_type)


def test_equal_protos_make_equal_files(published: Path, tmp_path: Path) -> None:
    again = publish(tmp_path)
    for path in published.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()


async def run(*command: str, directory: Path, seconds: float) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


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


async def test_node_streams_a_chat_by_the_descriptor_set(
    node_example: Path, published: Path, local_cluster: Callable[..., Any]
) -> None:
    cluster = await local_cluster()
    (model,) = await cluster.client.models()
    question = "What does a client in another language hear?"
    chat = ["chat.js", str(published / "baton-v1.binpb"), cluster.frontend.address]

    code, out, err = await run(
        "node", *chat, model.name, question, directory=node_example, seconds=CHAT_SECONDS
    )
    assert (code, err) == (0, "")
    stream = cluster.client.chat(question, model=model.name, temperature=0, max_tokens=128)
    answer = await stream.answer()
    assert answer.usage.output_tokens == 128
    assert out == f"{answer.text}\n({answer.usage.prompt_tokens} + 128 tokens)\n"

    code, out, err = await run(
        "node", *chat, "absent", question, directory=node_example, seconds=CHAT_SECONDS
    )
    assert (code, out) == (1, "")
    assert err.startswith("NOT_FOUND: the model 'absent' does not exist")
