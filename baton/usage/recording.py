"""Usage recording in a process: a spool, and the delivery of its records to sinks."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from baton.cluster.forgotten import ForgottenTenants
from baton.postgres.database import Database
from baton.settings import KafkaSettings, StartupError, UsageSettings
from baton.spool.delivery import Delivery
from baton.spool.sink import Sink
from baton.spool.spool import Spool
from baton.usage.metrics import USAGE
from baton.usage.sinks.jsonl import JsonlSink
from baton.usage.sinks.postgres import PostgresSink

Sinks = dict[str, Callable[[], Sink]]
"""Factories of sinks, by name."""


@asynccontextmanager
async def recording(
    settings: UsageSettings,
    database: Database | None = None,
    forgotten: ForgottenTenants | None = None,
) -> AsyncIterator[Spool | None]:
    """Open the spool and deliver from it; None if usage is not recorded.

    Args:
        settings: settings of the spool and its sinks.
        database: also receives the records; None: there is none.
        forgotten: tenants whose records the database does not receive; None: none.

    Raises:
        StartupError: a setting is missing or wrong, or the spool cannot be opened.
    """
    if settings.spool_path is None:
        yield None
        return
    sinks = _sinks(settings, database, forgotten)
    if not sinks:
        raise StartupError(
            "usage.spool_path is set, and its records have no destination: set state.url "
            "(BATON_STATE_URL), "
            "usage.jsonl_path (BATON_USAGE_JSONL_PATH) or usage.kafka.brokers "
            "(BATON_USAGE_KAFKA_BROKERS) too."
        )
    async with AsyncExitStack() as stack:
        spool = await stack.enter_async_context(
            Spool(settings.spool_path, settings, list(sinks), USAGE)
        )
        for make in sinks.values():
            await stack.enter_async_context(Delivery(spool, make()))
        if forgotten is not None:
            forgotten.on_change.append(lambda _: spool.rotate())
        yield spool


def _sinks(
    settings: UsageSettings, database: Database | None, forgotten: ForgottenTenants | None
) -> Sinks:
    """Return the sinks that settings configure."""
    sinks: Sinks = {}
    if database is not None:
        sinks[PostgresSink.name] = partial(PostgresSink, database, forgotten)
    if settings.jsonl_path is not None:
        sinks[JsonlSink.name] = partial(JsonlSink, settings.jsonl_path, settings.jsonl_file_bytes)
    if settings.kafka.brokers:
        sinks["kafka"] = partial(_kafka, settings.kafka)
    return sinks


def _kafka(settings: KafkaSettings) -> Sink:
    try:
        from baton.usage.sinks.kafka.sink import KafkaSink  # it needs the extra
    except ImportError as error:
        raise StartupError(
            "usage.kafka.brokers is set, and confluent-kafka cannot be imported "
            f"({error}): pip install 'baton-serving[kafka]'."
        ) from error
    return KafkaSink(settings)
