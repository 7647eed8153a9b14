"""The thread on which a worker reads the pictures of its streams."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from baton.engine.pictures import PictureError, PictureReader


class PictureThread:
    """Reads pictures, one after another; each stream waits for its own. Used on the event loop.

    Args:
        reader: of the engine; None: it takes no pictures, and `read` is not called.
    """

    def __init__(self, reader: PictureReader | None) -> None:
        self._reader = reader
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pictures")

    async def read(self, pictures: Sequence[bytes]) -> tuple[Any, ...]:
        """Return `SequenceRequest.pictures`; a cancelled call reads no further one.

        Raises:
            PictureError: one cannot be decoded; the text gives its number.
        """
        assert self._reader is not None
        loop = asyncio.get_running_loop()
        read = []
        for number, data in enumerate(pictures, 1):
            try:
                read.append(await loop.run_in_executor(self._thread, self._reader.read, data))
            except PictureError as error:
                raise PictureError(f"picture {number} cannot be read: {error}") from error
        return tuple(read)

    def close(self) -> None:
        """Stop the thread. No call may be open."""
        self._thread.shutdown(cancel_futures=True)
