"""Loads the tokenizers named by model cards, from the workers that serve them or from etcd."""

import asyncio
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from baton.internal.v1.cluster_pb2 import Instance
from baton.process.background import cancel_all, start_background
from baton.rpc.timing.backoff import Backoff
from baton.settings import WorkerConnectionSettings
from baton.telemetry.logs import get_logger
from baton.worker.kept.reader import KeptTokenizers
from baton.worker.wire.tokenizer_files import TokenizerFiles
from services.frontend.metrics import TOKENIZER_LOADS
from services.frontend.models.fetch import FetchError, fetch_tokenizer
from services.frontend.models.registry import Registry
from services.frontend.text.tokenizer import Tokenizer

MAX_LOADS = 2
"""Concurrent fetches: each may have 64 MiB. Others wait their turn."""
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 5.0
_SAMPLE = "A 1 é\n"

log = get_logger(__name__)


class TokenizerLoader:
    """Runs one task per tokenizer that the registry lacks; lives on the event loop.

    A task tries the workers in random order until one delivers the files, then what is kept of
    models without workers; it ends when no card names the tokenizer any more. Nothing is written to
    disk.
    """

    def __init__(
        self,
        registry: Registry,
        instances: Callable[[], Iterable[Instance]],
        settings: WorkerConnectionSettings,
        kept: KeptTokenizers,
    ) -> None:
        """Load for a registry, from the workers among the `instances` alive, and from `kept`."""
        self._settings = settings
        self._kept = kept
        self._registry = registry
        self._instances = instances
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_LOADS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load-tokenizer")
        self.on_loaded: Callable[[], None] = lambda: None
        """Called when a tokenizer was loaded."""

    async def __aenter__(self) -> "TokenizerLoader":
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._tasks.values())
        self._thread.shutdown(wait=True, cancel_futures=True)

    def update(self) -> None:
        """Load what the registry lacks now, and stop loads that are no longer needed."""
        missing, sizes = self._registry.missing(), self._registry.wanted()
        for digest in self._tasks.keys() - missing:
            self._tasks.pop(digest).cancel()
        for digest in missing - self._tasks.keys():
            work = self._load(digest, sizes[digest])
            self._tasks[digest] = start_background(work, "load tokenizer")

    async def _load(self, digest: bytes, size: int) -> None:
        short = digest.hex()[:16]
        async with self._slots:
            begun = monotonic()
            files = await self._fetch(digest, size)
            fetched = monotonic()
            try:
                loop = asyncio.get_running_loop()
                tokenizer = await loop.run_in_executor(self._thread, _parse, files)
            except ValueError as error:
                TOKENIZER_LOADS.labels("refused").inc()
                log.error("model.tokenizer.refused", digest=short, error=str(error))
                self._registry.refuse_tokenizer(digest, str(error))
            else:
                TOKENIZER_LOADS.labels("ok").inc()
                log.info(
                    "model.tokenizer.loaded",
                    digest=short,
                    bytes=files.size,
                    fetch_seconds=round(fetched - begun, 4),
                    parse_seconds=round(monotonic() - fetched, 4),
                )
                self._registry.add_tokenizer(digest, tokenizer)
        del self._tasks[digest]
        self.update()
        self.on_loaded()

    async def _fetch(self, digest: bytes, size: int) -> TokenizerFiles:
        """Return the files from the first worker that delivers all of them, or from etcd."""
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        tried: set[str] = set()
        while True:
            serving = [one for one in self._instances() if one.tokenizer_digest == digest]
            untried = [one for one in serving if one.incarnation not in tried]
            if not untried:
                files = await self._kept.read(digest, size)
                if files is not None:
                    return files
                tried.clear()
                await asyncio.sleep(backoff.next())
                continue
            worker = random.choice(untried)
            tried.add(worker.incarnation)
            try:
                return await fetch_tokenizer(worker.address, digest, size, self._settings)
            except FetchError as error:
                TOKENIZER_LOADS.labels("failed").inc()
                log.warning("model.tokenizer.fetch_failed", peer=worker.id, error=str(error))


def _parse(files: TokenizerFiles) -> Tokenizer:
    """Read a tokenizer and use it once; any failure of a damaged one is a ValueError."""
    try:
        tokenizer = Tokenizer.load(files)
        tokenizer.decode(tokenizer.encode(_SAMPLE))
    except BaseException as error:  # a panic of the library is not an Exception
        raise ValueError(f"{error}"[:500]) from error
    return tokenizer
