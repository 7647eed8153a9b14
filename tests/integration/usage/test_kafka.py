"""The request log: what stands in a topic is what requests used, whatever became of the broker."""

import asyncio
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from baton.cli.admin.certs.authority import Authority
from baton.settings import KafkaSettings
from baton.spool.sink import SinkError
from baton.usage.record import UsageRecord, decode, encode
from baton.usage.recording import recording
from baton.usage.sinks.kafka.sink import KafkaSink
from tests.support.clock import Stopwatch, within
from tests.support.loops.holds import LoopHolds
from tests.support.usage.kafka import (
    TOPIC,
    Broker,
    broker,
    broker_behind_a_proxy,
    broker_with_tls,
    messages,
)
from tests.support.usage.records import begun, ended, usage_settings
from tests.support.wait import eventually


def settings_of(address: str, **fields: Any) -> KafkaSettings:
    return KafkaSettings(brokers=(address,), topic=TOPIC, **{"timeout_seconds": 1, **fields})


async def written(sink: KafkaSink, records: list[UsageRecord]) -> None:
    """Write records as `Delivery` does, until they are taken."""
    while True:
        try:
            return await sink.write([encode(record) for record in records])
        except SinkError:
            await asyncio.sleep(0.05)


def some(count: int, **fields: Any) -> list[UsageRecord]:
    return [ended(begun(str(number), **fields)) for number in range(count)]


async def test_each_record_is_a_message_in_the_partition_of_its_team() -> None:
    teams = [("acme", "proj_1"), ("acme", "proj_2"), ("other", "")]
    records = [
        ended(begun(f"{tenant}{number}", tenant=tenant, project=project))
        for number in range(100)
        for tenant, project in teams
    ]
    async with broker() as one:
        sink = KafkaSink(settings_of(one.address, timeout_seconds=10))
        await sink.write([encode(record) for record in records[:200]])
        await sink.write([encode(record) for record in records[200:]])
        found = await messages(one.address, len(records))
        await sink.close()
    by_key: dict[bytes, list[UsageRecord]] = {}
    for message in sorted(found, key=lambda one: (one.partition(), one.offset())):
        record = decode(message.value())
        by_key.setdefault(message.key(), []).append(record)
        assert message.value() == encode(record)
        assert message.headers() == [("id", record.id.encode()), ("version", b"1")]
    assert by_key == {
        f"{tenant}/{project}".encode(): [
            record for record in records if (record.tenant, record.project) == (tenant, project)
        ]
        for tenant, project in teams
    }
    partitions = {(message.key(), message.partition()) for message in found}
    assert len(partitions) == len(teams)


@pytest.mark.parametrize("breaks", ["cut", "hold"])
async def test_what_a_broker_did_not_acknowledge_comes_again(breaks: str) -> None:
    """Connections that break, and answers that do not come though the broker has the records."""
    batches = [some(20) for _ in range(2)]
    async with broker_behind_a_proxy() as proxy:
        sink = KafkaSink(settings_of(proxy.address))
        await written(sink, batches[0])
        writing = asyncio.create_task(written(sink, batches[1]))
        if breaks == "cut":
            await proxy.cut()
            await asyncio.sleep(0.1)
            await proxy.mend()
        else:
            proxy.hold()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):  # longer than the sink waits
                    await asyncio.shield(writing)
            proxy.release()
        await writing
        found = await messages(proxy.address, 40)
        await sink.close()
    ids = Counter(decode(message.value()).id for message in found)
    assert set(ids) == {record.id for batch in batches for record in batch}


async def test_while_the_broker_is_away_records_wait_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baton.spool.delivery._LONGEST_RETRY_SECONDS", 0.2)
    one = Broker()
    usage = usage_settings(tmp_path, kafka=settings_of(one.address))
    records = some(200)
    async with recording(usage) as spool:
        assert spool is not None
        for record in records[:100]:
            spool.begin(record)
            spool.end(record)
        await eventually(lambda: spool.position.offset)
        watch = Stopwatch()
    assert watch.seconds < 8  # its flush, its deliveries, its connections
    (left,) = await asyncio.to_thread(lambda: list(tmp_path.glob("*-*")))  # no broker has it
    try:
        await one.start()
        async with recording(usage) as spool:
            assert spool is not None
            for record in records[100:]:
                spool.begin(record)
                spool.end(record)
            found = await messages(one.address, 200)
            values = {message.value() for message in found}
            assert values == {encode(record) for record in records}
            await eventually(lambda: not left.exists())
    finally:
        await one.kill()


async def refused(settings: KafkaSettings) -> str:
    """Return what a sink says of two records that brokers do not take."""
    sink = KafkaSink(settings)
    with pytest.raises(SinkError, match="2 of 2 records") as raised:
        await sink.write([encode(record) for record in some(2)])
    await sink.close()
    return str(raised.value)


async def test_a_user_that_brokers_do_not_know_is_told_with_its_settings() -> None:
    one = Broker("--authentication")
    await one.start(topic="")
    try:
        said = await refused(
            settings_of(one.address, sasl_username="u", sasl_password="hidden", timeout_seconds=2)
        )
    finally:
        await one.kill()
    assert "unknown-user" in said
    assert "usage.kafka.sasl_username" in said
    assert "hidden" not in said


async def test_a_broker_is_trusted_by_the_authority_that_is_named(tmp_path: Path) -> None:
    ours, others = Authority.new("ours", 1), Authority.new("others", 1)
    issued = ours.issue(["localhost"], 1)
    files = {"cert": issued.cert, "key": issued.key, "ours": ours.cert, "others": others.cert}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    record = encode(some(1)[0])
    async with broker_with_tls(context) as address:
        for authority in ("ours", "others"):
            settings = settings_of(address, tls=True, tls_ca=tmp_path / authority)
            if authority == "others":
                said = await refused(settings)
                continue
            sink = KafkaSink(settings.model_copy(update={"timeout_seconds": 10}))
            await sink.write([record])
            await sink.close()
        plain = await refused(settings_of(address))
    assert "certificate" in said
    assert ".tls" in said
    assert ".tls" in plain


async def test_a_stop_gives_up_what_no_broker_acknowledges() -> None:
    async with broker() as one:
        sink = KafkaSink(settings_of(one.address, timeout_seconds=60))
        await sink.write([encode(record) for record in some(2)])
        one.freeze()
        try:
            writing = asyncio.create_task(sink.write([encode(record) for record in some(2)]))
            await asyncio.sleep(0.2)
            writing.cancel()
            async with within(2):
                await sink.close()
        finally:
            one.thaw()


async def test_brokers_that_no_name_server_knows_hold_nothing_up_and_are_told() -> None:
    """Neither looking for them nor the end of their producer takes the event loop's time."""
    async with LoopHolds() as holds:
        said = await refused(settings_of("nowhere.invalid:9092"))
    assert not holds.longer_than(0.5)
    assert "nowhere.invalid" in said
    assert "usage.kafka.brokers" in said
