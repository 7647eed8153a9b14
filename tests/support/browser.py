"""Pages in a real browser: headless Chromium, driven over pipes."""

import asyncio
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.clock import within

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-breakpad", "--disable-sync", "--remote-debugging-pipe"),
)
LONGEST_MESSAGE = 1 << 24
CLOSE_SECONDS = 10.0


def find_browser() -> str | None:
    """Return the path of a Chromium, if one is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """An open page, driven by the DevTools protocol: zero-terminated JSON on two pipes."""

    def __init__(self, to: asyncio.WriteTransport, of: asyncio.StreamReader) -> None:
        self._to = to
        self._of = of
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}

    async def open(self, url: str) -> None:
        """Open a page; its scripts may not have loaded yet."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", flatten=True, **target)
        self._session = {"sessionId": attached["sessionId"]}
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression; of a promise, its result.

        Raises:
            AssertionError: the expression threw an error.
        """
        done = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol; ignore events that arrive before its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params, **self._session}
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads((await self._of.readuntil(b"\0"))[:-1])
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result


@asynccontextmanager
async def browser_page(program: str, profile: Path, url: str) -> AsyncIterator[Page]:
    """Open a page in its own browser, which ends with the context.

    Args:
        program: the browser's path.
        profile: an empty directory for its files.
        url: the page's URL.
    """
    # The browser reads from its descriptor 3 and writes to its descriptor 4.
    of_us, to_us = os.pipe()
    of_browser, to_browser = os.pipe()
    command = [program, *OPTIONS, f"--user-data-dir={profile}"]
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'exec "$@" 3</dev/fd/{of_browser} 4>/dev/fd/{to_us}', "sh", *command),
        pass_fds=(of_browser, to_us),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(of_browser)
    os.close(to_us)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LONGEST_MESSAGE)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(of_us, "rb")
    )
    writing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(to_browser, "wb"))
    try:
        page = Page(writing, reader)
        await page.open(url)
        yield page
    finally:
        # Closed pipes end the browser, and it ends its processes.
        writing.close()
        reading.close()
        with suppress(TimeoutError):
            async with within(CLOSE_SECONDS):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
