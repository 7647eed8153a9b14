"""The socket on which a local cluster takes changes of its models: a JSON line in, JSON lines out.

Only this user reaches it: it is in the run directory, which no one else may enter.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from baton.cli.cluster.local.models.changes import ModelChanges, Say
from baton.cli.cluster.local.models.local_model import checked
from baton.cli.shared.errors import CommandError

READ_SECONDS = 5.0
MAX_LINE = 64 * 1024
MAX_CHANGES = 8


class ModelChange(msgspec.Struct, frozen=True):
    """A change that is asked for."""

    action: Literal["add", "set", "remove"]
    name: str = ""
    """Of the model; of one that is added, in the options."""
    options: dict[str, str] = {}
    wait_seconds: float = 30.0


class ChangeReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far it is, or how it ended."""

    said: str = ""
    done: bool = False
    error: str = ""
    code: int = 0


@asynccontextmanager
async def serve_changes(path: Path, changes: ModelChanges) -> AsyncIterator[None]:
    """Take changes until the exit, which cancels those that run."""
    slots = asyncio.Semaphore(MAX_CHANGES)
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            running.add(task)
            task.add_done_callback(running.discard)
        try:
            async with slots:
                await _serve(reader, writer, changes)
        finally:
            writer.close()

    with reachable(path) as short:
        server = await asyncio.start_unix_server(serve, short, limit=MAX_LINE)
    try:
        yield
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changes: ModelChanges
) -> None:
    def reply(one: ChangeReply) -> None:
        with suppress(OSError):  # the command was interrupted: the change goes on
            writer.write(msgspec.json.encode(one) + b"\n")

    try:
        async with asyncio.timeout(READ_SECONDS):
            line = await reader.readline()
        change = msgspec.json.decode(line, type=ModelChange)
        await apply(changes, change, lambda sentence: reply(ChangeReply(said=sentence)))
    except CommandError as error:
        reply(ChangeReply(error=str(error), code=error.code, done=True))
    except (msgspec.DecodeError, ValueError, TimeoutError) as error:
        text = f"The change cannot be read ({error}): use the release that runs the cluster."
        reply(ChangeReply(error=text, code=2, done=True))
    else:
        reply(ChangeReply(done=True))
    with suppress(OSError):
        await writer.drain()


async def apply(changes: ModelChanges, change: ModelChange, say: Say) -> None:
    """Make a change.

    Raises:
        CommandError: it is invalid, or a worker does not start.
    """
    match change.action:
        case "add":
            await changes.add(checked("The model", change.options), say)
        case "set":
            await changes.set(change.name, change.options, say)
        case "remove":
            await changes.remove(change.name, change.wait_seconds, say)


async def ask(path: Path, change: ModelChange) -> AsyncGenerator[str, None]:
    """Ask a cluster for a change; yield what it says until it is done.

    Raises:
        CommandError: the cluster refuses it, or it failed.
        OSError: the cluster has ended.
    """
    with reachable(path) as short:
        reader, writer = await asyncio.open_unix_connection(short, limit=MAX_LINE)
    try:
        writer.write(msgspec.json.encode(change) + b"\n")
        await writer.drain()
        while line := await reader.readline():
            reply = msgspec.json.decode(line, type=ChangeReply)
            if reply.error:
                raise CommandError(reply.error, reply.code)
            if reply.said:
                yield reply.said
            if reply.done:
                return
        raise ConnectionResetError("it stopped")
    finally:
        writer.close()


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Give a short name to a socket's path: the kernel takes at most 107 bytes."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
