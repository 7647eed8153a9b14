"""The request log's sink where its producer fails, and what its settings may be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from baton.settings import FrontendSettings, KafkaSettings, StartupError, load_with_sources
from baton.settings.describe import describe
from baton.spool.sink import SinkError
from baton.usage.record import encode
from baton.usage.sinks.kafka.config import configuration
from baton.usage.sinks.kafka.sink import KafkaSink
from tests.support.usage.records import begun, ended

RECORDS = [encode(ended(begun(str(number)))) for number in range(3)]
BROKERS = {"brokers": ("a:1", "b:2")}


class FakeProducer:
    """Takes messages, and says of each what its script does: an error, or None."""

    def __init__(self, config: dict[str, Any], script: list[KafkaError | None], room: int) -> None:
        self.config = config
        self.script = script
        self.connection_errors: list[KafkaError] = []
        self.room = room
        self.queue: list[Callable[[KafkaError | None, Any], None]] = []
        self.keys: list[bytes] = []
        self.purged = False

    def produce(self, topic: str, *, key: bytes, on_delivery: Any, **_: Any) -> None:
        if len(self.queue) >= self.room:
            raise BufferError
        self.keys.append(key)
        self.queue.append(on_delivery)

    def poll(self, timeout: float) -> int:
        count = len(self.queue)
        for lost in self.connection_errors:
            self.config["error_cb"](lost)
        for on_delivery in self.queue:
            error = self.script.pop(0) if self.script else None
            if error is not None and error.fatal():
                self.config["error_cb"](error)
            on_delivery(error, None)
        self.queue.clear()
        return count

    def purge(self, **_: bool) -> None:
        self.purged = True


class Producers:
    """Makes producers, and keeps them."""

    def __init__(self, *scripts: list[KafkaError | None], room: int = 100) -> None:
        self.scripts = list(scripts)
        self.room = room
        self.made: list[FakeProducer] = []

    def __call__(self, config: dict[str, Any]) -> Any:
        script = self.scripts.pop(0) if self.scripts else []
        self.made.append(FakeProducer(config, script, self.room))
        return self.made[-1]


def error(code: int, **options: Any) -> KafkaError:
    return KafkaError(code, "because", **options)


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (error(KafkaError._FATAL, fatal=True), "because"),
        (error(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), "because"),
        (error(KafkaError.INVALID_PRODUCER_EPOCH), "because"),
        (error(KafkaError.UNKNOWN_TOPIC_OR_PART), r"usage\.kafka\.topic"),
        (error(KafkaError._UNKNOWN_TOPIC), r"usage\.kafka\.topic"),
        (error(KafkaError.TOPIC_AUTHORIZATION_FAILED), "may not write"),
        (error(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "IdempotentWrite"),
        (error(KafkaError.MSG_SIZE_TOO_LARGE), r"max\.message\.bytes"),
    ],
    ids=lambda value: value.name() if isinstance(value, KafkaError) else "",
)
async def test_after_a_failure_a_new_producer_brings_all_again(
    failed: KafkaError, said: str
) -> None:
    producers = Producers([None, failed, None])
    sink = KafkaSink(KafkaSettings(**BROKERS), producers)
    with pytest.raises(SinkError, match=said) as raised:
        await sink.write(RECORDS)
    assert "1 of 3 records" in str(raised.value)
    assert producers.made[0].purged
    await sink.write(RECORDS)
    await sink.write(RECORDS)
    assert [len(one.keys) for one in producers.made] == [3, 6]
    await sink.close()


REFUSED = error(KafkaError._SSL)
LOST = error(KafkaError._TRANSPORT)
DOWN = error(KafkaError._ALL_BROKERS_DOWN)


@pytest.mark.parametrize(
    ("errors", "named"),
    [
        ([REFUSED, DOWN, LOST], "tls, .tls_ca"),
        ([DOWN, LOST, REFUSED], "tls, .tls_ca"),
        ([REFUSED, error(KafkaError._AUTHENTICATION), LOST], "sasl_username"),
        ([LOST, DOWN], "brokers and .tls"),
        ([DOWN], "brokers and .tls"),
    ],
)
async def test_of_a_connections_errors_the_one_that_says_most_is_told(
    errors: list[KafkaError], named: str
) -> None:
    late = error(KafkaError._MSG_TIMED_OUT)
    producers = Producers([late] * len(RECORDS))
    sink = KafkaSink(KafkaSettings(**BROKERS), producers)
    producers.made[0].connection_errors = errors
    with pytest.raises(SinkError) as raised:
        await sink.write(RECORDS)
    assert f"because (see usage.kafka.{named}" in str(raised.value)
    await sink.close()


async def test_a_queue_that_is_shorter_than_a_batch_is_filled_again_and_again() -> None:
    producers = Producers(room=1)
    sink = KafkaSink(KafkaSettings(**BROKERS), producers)
    await sink.write(RECORDS)
    assert producers.made[0].keys == [b"acme/proj_1"] * 3
    await sink.close()


async def test_one_that_cannot_be_made_is_a_sentence() -> None:
    def refuse(_: dict[str, Any]) -> Any:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "No such property"))

    with pytest.raises(StartupError, match=r"No such property.*usage\.kafka\.options"):
        KafkaSink(KafkaSettings(**BROKERS), refuse)


async def test_librdkafka_checks_the_properties_that_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="compression"):
        KafkaSink(KafkaSettings(**BROKERS, options={"compression.typ": "zstd"}))
    with pytest.raises(StartupError, match="tls_ca"):
        KafkaSink(KafkaSettings(**BROKERS, tls=True, tls_ca=tmp_path / "none"))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {"security.protocol": "PLAINTEXT", "acks": "all", "enable.idempotence": True}),
        ({"tls": True}, {"security.protocol": "SSL"}),
        (
            {"tls": True, "tls_ca": "ca", "tls_cert": "c", "tls_key": "k"},
            {
                "ssl.ca.location": "ca",
                "ssl.certificate.location": "c",
                "ssl.key.location": "k",
            },
        ),
        (
            {"sasl_username": "u", "sasl_password": "p"},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "u",
                "sasl.password": "p",
            },
        ),
        (
            {"sasl_username": "u", "sasl_password": "p", "sasl_mechanism": "PLAIN", "tls": True},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        ),
        (
            {"options": {"compression.type": "zstd", "linger.ms": 20}},
            {"compression.type": "zstd", "linger.ms": 20, "bootstrap.servers": "a:1,b:2"},
        ),
    ],
)
def test_settings_become_properties(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = configuration(KafkaSettings(**BROKERS, **fields))
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tls_ca": "ca"}, "BATON_USAGE_KAFKA_TLS"),
        ({"tls": True, "tls_cert": "c"}, "BATON_USAGE_KAFKA_TLS_KEY"),
        ({"tls": True, "tls_key": "k"}, "BATON_USAGE_KAFKA_TLS_CERT"),
        ({"sasl_username": "u"}, "BATON_USAGE_KAFKA_SASL_PASSWORD"),
        ({"sasl_password": "hidden"}, "BATON_USAGE_KAFKA_SASL_USERNAME"),
        (
            {"sasl_username": "u", "sasl_password": "hidden", "sasl_mechanism": "PLAIN"},
            "BATON_USAGE_KAFKA_TLS",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_told(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(StartupError, match=said) as raised:
        configuration(KafkaSettings(**BROKERS, **fields))
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BROKERS", "a", "not host:port"),
        ("TOPIC", "a topic", "usage.kafka.topic"),
        ("OPTIONS", '{"acks": 1}', "always `all`"),
        ("OPTIONS", '{"sasl.password": "hidden"}', "sasl_password"),
        ("OPTIONS", '{"linger.ms": [1]}', "must be a string"),
        ("OPTIONS", "linger.ms=1", "is not JSON"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str, said: str) -> None:
    environment = {f"BATON_USAGE_KAFKA_{variable}": value}
    with pytest.raises(StartupError, match=said) as raised:
        load_with_sources(FrontendSettings, (), "frontend", environment)
    assert "hidden" not in str(raised.value)


def test_the_password_is_not_shown() -> None:
    environment = {
        "BATON_USAGE_KAFKA_BROKERS": "a:1",
        "BATON_USAGE_KAFKA_SASL_PASSWORD": "hidden",
    }
    loaded = load_with_sources(FrontendSettings, (), "frontend", environment)
    assert loaded.settings.usage.kafka.sasl_password.get_secret_value() == "hidden"
    assert "hidden" not in str(describe(loaded)) + repr(loaded.settings)
