"""Writes usage records to a Kafka topic: a message per record, acknowledged by all replicas.

The value is the record's line, as everywhere. The key is `tenant/project`: a team's records are in
one partition, in the order in which its frontend wrote them, as are copies of a record. Headers are
the record's `id` and the `version` of its fields.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from time import monotonic
from typing import Any, Protocol

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from baton.process.background import start_background
from baton.process.io_thread import IoThread
from baton.settings import KafkaSettings, StartupError
from baton.spool.sink import SinkError
from baton.telemetry.logs import get_logger
from baton.usage.record import VERSION
from baton.usage.sinks.kafka.config import cause, configuration, says_less

_POLL_SECONDS = 0.1
_IDLE_POLL_SECONDS = 1.0
_GRACE_SECONDS = 2.0
"""Tolerance for librdkafka's clock, which reports the result of each message within its timeout."""
_CLOSE_SECONDS = 1.0
_VERSION = VERSION.encode()

log = get_logger(__name__)


class KafkaProducer(Protocol):
    """The used part of confluent_kafka.Producer."""

    def produce(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes,
        headers: list[tuple[str, str | bytes | None]],
        on_delivery: Callable[[KafkaError | None, Message], None],
    ) -> None: ...

    def poll(self, timeout: float) -> int: ...

    def purge(self, in_queue: bool, in_flight: bool, blocking: bool) -> None: ...


class _RecordOwner(msgspec.Struct):
    id: str
    tenant: str
    project: str = ""


class KafkaSink:
    """Writes records to a topic with an idempotent producer. Blocking calls run on a separate
    thread.

    librdkafka holds one batch at most: each of its messages is acknowledged or has failed before
    the next batch. After a failure all of a batch is sent again, including stored messages, by a
    producer with a new identity: brokers may reject one whose messages timed out.

    Args:
        settings: addresses of the brokers, and how to connect.
        connect: creates a producer from librdkafka's properties.

    Raises:
        StartupError: a setting is wrong.
    """

    name = "kafka"
    local = False

    def __init__(
        self,
        settings: KafkaSettings,
        connect: Callable[[dict[str, Any]], KafkaProducer] = Producer,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._config = configuration(settings) | {
            "error_cb": self._on_error,
            "logger": logging.getLogger(__name__),
        }
        self._named = msgspec.json.Decoder(_RecordOwner)
        self._closing = Event()
        self._producer: KafkaProducer | None = self._connected()
        self._fatal = False
        """Whether the producer has failed permanently."""
        self._last_error: KafkaError | None = None
        """Why messages are not acknowledged: they themselves only report a timeout."""
        self._thread = IoThread("usage-kafka")
        self._polling = start_background(self._poll_idle(), "usage-kafka-poll")

    async def write(self, records: Sequence[bytes]) -> None:
        """Return once all in-sync replicas have all records.

        Raises:
            SinkError: it is unknown whether they have; the message names the settings to check.
        """
        problem = await self._thread.call(partial(self._send, records))
        if problem:
            raise SinkError(problem)

    async def close(self) -> None:
        """Drop unacknowledged messages, and close connections."""
        self._closing.set()
        self._polling.cancel()
        self._thread.submit(self._drop)
        await self._thread.stop(_CLOSE_SECONDS)

    def _connected(self) -> KafkaProducer:
        try:
            return self._connect(self._config)
        except KafkaException as error:
            raise StartupError(
                f"usage.kafka is wrong: {error.args[0].str()}. See usage.kafka.options, .tls_ca, "
                ".tls_cert and .tls_key (BATON_USAGE_KAFKA_…)."
            ) from error

    def _send(self, records: Sequence[bytes]) -> str:
        """Return why brokers may not have the records; empty: they have. On the thread.

        Nothing is raised: an error's traceback would carry the producer, whose shutdown may take a
        while, to the event loop.
        """
        batch = _Batch(len(records))
        until = monotonic() + self._settings.timeout_seconds + _GRACE_SECONDS
        self._last_error = None
        try:
            producer = self._producer = self._producer or self._connected()
            for record in records:
                if not self._produce(producer, record, batch, until):
                    break
            while batch.waiting and self._goes_on(until):
                producer.poll(_POLL_SECONDS)
        except KafkaException as error:
            return self._why(error.args[0])
        except StartupError as error:  # files of certificates may have changed since
            return str(error)
        finally:
            if batch.missing:
                self._drop()
        if not batch.missing:
            return ""
        why = self._why(batch.error)
        return f"{batch.missing} of {len(records)} records are not acknowledged: {why}"

    def _produce(
        self, producer: KafkaProducer, record: bytes, batch: "_Batch", until: float
    ) -> bool:
        """Pass a record to librdkafka; return whether its queue had space in time."""
        named = self._named.decode(record)
        while True:
            try:
                producer.produce(
                    self._settings.topic,
                    key=f"{named.tenant}/{named.project}".encode(),
                    value=record,
                    headers=[("id", named.id.encode()), ("version", _VERSION)],
                    on_delivery=batch.on_delivery,
                )
            except BufferError:  # usage.kafka.options made its queue shorter than a batch
                if not self._goes_on(until):
                    return False
                producer.poll(_POLL_SECONDS)
            else:
                return True

    def _goes_on(self, until: float) -> bool:
        return not (self._closing.is_set() or self._fatal) and monotonic() < until

    def _why(self, error: KafkaError | None) -> str:
        """Return the most specific cause: messages time out because of their connections'
        errors."""
        if error is None or error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._FATAL):
            error = self._last_error or error
        if error is not None:
            return cause(error)
        return (
            "the process is stopping"
            if self._closing.is_set()
            else ("brokers did not respond in time")
        )

    def _on_error(self, error: KafkaError) -> None:
        """Record an error; on the thread, within a poll."""
        if self._last_error is None or not says_less(error, than=self._last_error):
            self._last_error = error
        if error.fatal():
            self._fatal = True
            log.warning("usage.kafka.producer_failed", error=cause(error))

    def _drop(self) -> Callable[[], None]:
        """Drop the producer, with everything that it holds."""
        producer, self._producer = self._producer, None
        self._fatal = False
        if producer is not None:
            producer.purge(in_queue=True, in_flight=True, blocking=False)
        return _nothing

    async def _poll_idle(self) -> None:
        """Poll librdkafka also while there are no records: otherwise its events accumulate."""
        while True:
            await asyncio.sleep(_IDLE_POLL_SECONDS)
            await self._thread.call(self._poll)

    def _poll(self) -> None:
        if self._producer is not None:
            self._producer.poll(0)
            if self._fatal:
                self._drop()


class _Batch:
    """Results of the messages of one batch."""

    __slots__ = ("error", "failed", "waiting")

    def __init__(self, count: int) -> None:
        self.waiting = count
        self.failed = 0
        self.error: KafkaError | None = None
        """The first error."""

    @property
    def missing(self) -> int:
        """Number of messages not known to be stored."""
        return self.waiting + self.failed

    def on_delivery(self, error: KafkaError | None, _: Message) -> None:
        """Record, within a poll, that a message was acknowledged, or has failed permanently."""
        self.waiting -= 1
        if error is not None:
            self.failed += 1
            self.error = self.error or error


def _nothing() -> None:
    """Do nothing: it was dropped."""
