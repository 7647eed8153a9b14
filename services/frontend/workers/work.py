"""One piece of work at a worker: a stream of a link, from Start to its end."""

from collections.abc import Sequence
from enum import Enum

from baton.internal.v1 import kvstore_pb2, worker_pb2
from services.frontend.workers.connection import Link
from services.frontend.workers.event_buffer import Mailbox


class Kind(Enum):
    PREFILL = "prefill"
    DECODE = "decode"


class Work:
    """An open stream. `release` gives back what the worker holds for it."""

    def __init__(
        self,
        kind: Kind,
        choice: int,
        link: Link,
        start: worker_pb2.Start,
        mailbox: Mailbox,
        now: float,
    ) -> None:
        """Start it.

        Args:
            kind: what the worker does.
            choice: which choice it decodes; 0 for prefill, which serves all.
            link: the worker.
            start: the frame, whole but for its stream_id.
            mailbox: where its frames go.
            now: monotonic time in seconds.

        Raises:
            LinkBrokenError: the worker has just gone; nothing was started.
        """
        self.kind = kind
        self.choice = choice
        self.link = link
        self.instance = link.target.instance_id
        self.waits = start.HasField("prepare")
        """It is prepared and waits for Generate."""
        self.fresh = start.HasField("generate") and not start.generate.output_so_far
        """It decodes from the first token on: it reads the prompt itself."""
        self.prepared = False
        """The prompt's KV is in place as far as it will come."""
        self.begun_at = now
        self.first_at: float | None = None
        """When its first token came."""
        self.tokens = 0
        """Tokens that it gave and nobody else had given before."""
        self.cached_tokens: int | None = None
        self.stream_id = link.start(start, mailbox)

    def generate(self, output_so_far: Sequence[int], now: float) -> None:
        """Let a prepared stream decode."""
        self.waits = False
        self.begun_at = now
        frame = worker_pb2.Generate(stream_id=self.stream_id, output_so_far=output_so_far)
        self.link.send(worker_pb2.FrameToWorker(generate=frame))

    def update_sources(self, sources: Sequence[kvstore_pb2.KvSource]) -> None:
        """Tell a stream that waits for KV who may come to hold it."""
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, sources=sources)
        self.link.send(worker_pb2.FrameToWorker(update_sources=frame))

    def settle(self) -> None:
        """Tell a stream that waits for KV that no more will come than is there."""
        frame = worker_pb2.UpdateSources(stream_id=self.stream_id, prefill_done=True)
        self.link.send(worker_pb2.FrameToWorker(update_sources=frame))

    def release(self) -> None:
        """Want no more of it; no error if it has ended."""
        self.link.release(self.stream_id)
