"""librdkafka's configuration, from `usage.kafka`, and which of these settings an error concerns."""

from typing import Any

from confluent_kafka import KafkaError

from baton.settings import KafkaSettings, StartupError

_KAFKA = "usage.kafka"
_SETTINGS = {
    KafkaError._AUTHENTICATION: "sasl_username, .sasl_password and .sasl_mechanism",
    KafkaError.SASL_AUTHENTICATION_FAILED: "sasl_username and .sasl_password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "sasl_mechanism",
    KafkaError._SSL: "tls, .tls_ca, .tls_cert and .tls_key",
    KafkaError._UNKNOWN_TOPIC: "topic",
    KafkaError._UNKNOWN_PARTITION: "topic",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "topic",
    KafkaError.TOPIC_EXCEPTION: "topic",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic: the user may not write to it",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "sasl_username: the user needs IdempotentWrite",
    KafkaError.MSG_SIZE_TOO_LARGE: "topic: its max.message.bytes is too small",
}
"""Settings to check, by error code; other errors concern the brokers."""


def configuration(settings: KafkaSettings) -> dict[str, Any]:
    """Return librdkafka's properties; `settings.options` are included, and take precedence.

    Raises:
        StartupError: settings conflict.
    """
    timeout_ms = int(settings.timeout_seconds * 1000)
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.brokers),
        "client.id": "baton",
        "enable.idempotence": True,
        "acks": "all",
        # If others also write to the topic, all copies of a key are in one partition.
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        # No message waits longer than a batch: each is acknowledged or has failed.
        "message.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
        "socket.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": min(timeout_ms, 10_000),
        # A topic that does not exist is named as such before that.
        "topic.metadata.propagation.max.ms": min(timeout_ms // 2, 5_000),
        "reconnect.backoff.max.ms": 2_000,
        "socket.keepalive.enable": True,
        "log_level": 2,  # a sink's failures say it; a line per attempt to connect is too much
    }
    found |= _security(settings)
    return found | dict(settings.options)


def _security(settings: KafkaSettings) -> dict[str, Any]:
    sasl, tls = bool(settings.sasl_username), settings.tls
    password = settings.sasl_password.get_secret_value()
    files = {"ca": settings.tls_ca, "certificate": settings.tls_cert, "key": settings.tls_key}
    if any(files.values()) and not tls:
        raise StartupError(_wrong("tls is false, and certificates are given: set {}", "tls"))
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise StartupError(
            _wrong("tls_cert and .tls_key belong together: set {} too", "tls_key")
            if settings.tls_cert
            else _wrong("tls_key is the key of a certificate: set {} too", "tls_cert")
        )
    if sasl != bool(password):
        missing = "sasl_password" if sasl else "sasl_username"
        raise StartupError(
            _wrong("sasl_username and .sasl_password belong together: set {} too", missing)
        )
    if sasl and settings.sasl_mechanism == "PLAIN" and not tls:
        raise StartupError(
            _wrong(
                "sasl_mechanism is PLAIN, which shows the password to the network: set {}", "tls"
            )
        )
    found: dict[str, Any] = {
        "security.protocol": ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    }
    if sasl:
        found |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.sasl_username,
            "sasl.password": password,
        }
    return found | {f"ssl.{name}.location": str(path) for name, path in files.items() if path}


def _wrong(problem: str, setting: str) -> str:
    named = f"{_KAFKA}.{setting} (BATON_USAGE_KAFKA_{setting.upper()})"
    return f"{_KAFKA}.{problem.format(named)}."


def says_less(error: KafkaError, than: KafkaError) -> bool:
    """Return whether a connection error is less informative than another one.

    That all brokers are down says less than why the first one was, and a lost connection less than
    one rejected because of a setting: librdkafka reports a failed handshake as either, depending on
    thread timing.
    """
    return _tells(error) < _tells(than)


def _tells(error: KafkaError) -> int:
    if error.code() in _SETTINGS:
        return 2
    return int(error.code() != KafkaError._ALL_BROKERS_DOWN)


def cause(error: KafkaError) -> str:
    """Return the cause of an error in words, with the settings that it concerns."""
    named = _SETTINGS.get(error.code(), "brokers and .tls")
    return f"{error.str()} (see {_KAFKA}.{named})"
