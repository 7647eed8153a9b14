"""What workers say to one request, until the request's task reads it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from baton.rpc.errors import BatonError, Reason
from baton.v1 import common_pb2, worker_pb2

LIMIT_BYTES = 192 * 1024
# Roughly what Python spends on them.
_ITEM_BYTES = 160
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 120


class Tokens:
    """Tokens of one choice, in order."""

    __slots__ = ("choice", "logprobs", "position", "stream_id", "token_ids")

    def __init__(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: list[int],
        logprobs: list[common_pb2.TokenLogprob],
    ) -> None:
        self.stream_id = stream_id
        self.choice = choice
        self.position = position
        self.token_ids = token_ids
        self.logprobs = logprobs


class Lost:
    """The connection that a stream ran on broke; nothing more comes of the stream."""

    __slots__ = ("stream_id",)

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


Mail = Tokens | Lost | worker_pb2.Prepared | worker_pb2.StreamFinished | worker_pb2.StreamFailed


class Mailbox:
    """A bounded queue with one reader, for all streams of one request.

    Holds at most 192 KiB (another 64 may wait in the connection's own buffer). Mail that does not
    fit cuts the request: what waits is dropped, `on_cut` is called at once, and the reader gets
    SLOW_CONSUMER. Whoever delivers never waits.
    """

    def __init__(self, on_cut: Callable[[], None]) -> None:
        self._on_cut = on_cut
        self._mail: deque[Mail] = deque()
        self._bytes = 0
        self._error: BatonError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._awake = False

    def tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> None:
        """Deliver tokens; those that follow on the last mail's are added to it."""
        cost = len(token_ids) * _TOKEN_BYTES + sum(
            _LOGPROB_BYTES * (1 + len(entry.top)) for entry in logprobs
        )
        last = self._mail[-1] if self._mail else None
        if (
            type(last) is Tokens
            and last.stream_id == stream_id
            and last.choice == choice
            and last.position + len(last.token_ids) == position
        ):
            if self._fits(cost):
                last.token_ids.extend(token_ids)
                last.logprobs.extend(logprobs)
        elif self._fits(cost + _ITEM_BYTES):
            self._mail.append(Tokens(stream_id, choice, position, list(token_ids), list(logprobs)))
            self._wake()

    def put(self, mail: Mail) -> None:
        """Deliver anything else."""
        if self._fits(_ITEM_BYTES):
            self._mail.append(mail)
            self._wake()

    def fail(self, error: BatonError) -> None:
        """End the request: the reader gets the error instead of mail, now and ever after."""
        if self._error is None:
            self._error = error
            self._mail.clear()
            self._wake()

    def wake(self) -> None:
        """Let the reader look at the world, though there may be no mail."""
        self._awake = True
        self._wake()

    async def get(self) -> list[Mail]:
        """All mail that waits, oldest first; none only after `wake`.

        Raises:
            BatonError: `fail` was called or the mailbox was cut.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._mail or self._awake:
                self._awake = False
                mail = list(self._mail)
                self._mail.clear()
                self._bytes = 0
                return mail
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None

    def _fits(self, cost: int) -> bool:
        if self._error is not None:
            return False
        if self._bytes + cost > LIMIT_BYTES:
            self.fail(
                BatonError(
                    Reason.SLOW_CONSUMER,
                    f"the client did not read: more than {LIMIT_BYTES // 1024} KiB of output wait",
                )
            )
            self._on_cut()
            return False
        self._bytes += cost
        return True

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
