"""What workers say to one request, until the request takes it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.telemetry.logs import get_logger
from baton.v1 import common_pb2

LIMIT_BYTES = 192 * 1024
# Roughly what Python spends on them.
_ITEM_BYTES = 160
_TOKEN_BYTES = 40
_LOGPROB_BYTES = 120

log = get_logger(__name__)


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


class Reader(Protocol):
    """Takes mail, and answers whether it has enough for now.

    It is called by whoever delivers, in the middle of that: it must not wait.
    """

    def take_tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> bool:
        """Tokens that did not have to wait: by far the most of all mail. Copy what is kept."""
        ...

    def take(self, mail: list[Mail]) -> bool:
        """Everything else, oldest first; nothing after a nudge."""
        ...


class Mailbox:
    """A bounded queue with one reader, for all streams of one request.

    Mail goes to the reader at once, and waits here while there is none or it is held: at most
    192 KiB (another 64 may wait in the connection's own buffer). Mail that does not fit cuts the
    request: what waits is dropped, `on_cut` is called at once, and the reader gets SLOW_CONSUMER.
    Whoever delivers never waits. A reader that fails harms only its own request.
    """

    def __init__(self, on_cut: Callable[[], None]) -> None:
        self._on_cut = on_cut
        self._mail: list[Mail] = []
        self._bytes = 0
        self._error: BatonError | None = None
        self._reader: Reader | None = None
        self._enough: asyncio.Future[None] | None = None
        self._awake = False
        self._held = False

    def tokens(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[common_pb2.TokenLogprob],
    ) -> None:
        """Deliver tokens; those that follow on the last mail's are added to it."""
        reader = self._reader
        if reader is not None and not self._held:
            try:
                if reader.take_tokens(stream_id, choice, position, token_ids, logprobs):
                    self._has_enough()
            except Exception as error:  # noqa: BLE001 - it is the request's, and reaches it
                self._broken(error)
            return
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

    def put(self, mail: Mail) -> None:
        """Deliver anything else."""
        if self._fits(_ITEM_BYTES):
            self._mail.append(mail)
            self._hand_over()

    def fail(self, error: BatonError) -> None:
        """End the request: the reader gets the error instead of mail, now and ever after."""
        if self._error is None:
            self._error = error
            self._mail.clear()
            self._has_enough()

    def nudge(self) -> None:
        """Let the reader look at the world, though there may be no mail."""
        self._awake = True
        self._hand_over()

    def hold(self) -> None:
        """Keep mail here until `resume`: the reader cannot take more."""
        self._held = True

    def resume(self) -> None:
        """Give mail to the reader again."""
        self._held = False
        self._hand_over()

    def waiting(self) -> list[Mail]:
        """Take out what waits."""
        mail, self._mail = self._mail, []
        self._bytes = 0
        return mail

    async def feed(self, reader: Reader) -> None:
        """Give mail to `reader`, also what waits already, until it has enough.

        Raises:
            BatonError: `fail` was called, the mailbox was cut, or the reader failed (INTERNAL).
        """
        if self._error is not None:
            raise self._error
        self._reader = reader
        try:
            self._hand_over()
            if self._reader is not None:
                self._enough = asyncio.get_running_loop().create_future()
                await self._enough
        finally:
            self._reader = self._enough = None
        if self._error is not None:
            raise self._error

    def _hand_over(self) -> None:
        reader = self._reader
        if reader is None or self._held or not (self._mail or self._awake):
            return
        self._awake = False
        try:
            if reader.take(self.waiting()):
                self._has_enough()
        except Exception as error:  # noqa: BLE001 - it is the request's, and reaches it
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        log.error("request failed", exc_info=error)
        self.fail(BatonError(Reason.INTERNAL, "internal error"))

    def _has_enough(self) -> None:
        self._reader = None
        if self._enough is not None and not self._enough.done():
            self._enough.set_result(None)

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
