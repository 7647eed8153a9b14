"""Other programs that tests run until they end."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.clock import within


async def run(
    *command: str, directory: Path, seconds: float, environment: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Run a program; return its exit status, standard output and standard error.

    All processes that it started end with it.

    Raises:
        TimeoutError: it did not end within `seconds` of a quiet machine, and was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with within(seconds):
            out, err = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode, out.decode(), err.decode()
