"""Settings of the Kafka brokers for the request log."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, SecretStr
from pydantic_core import PydanticCustomError

from baton.settings.groups.base import SettingsGroup
from baton.settings.values import HOLDS_SECRET, JsonTable, SomeEndpoints

_OWN = {
    "acks": "it is always `all`",
    "bootstrap.servers": "use usage.kafka.brokers",
    "delivery.timeout.ms": "use usage.kafka.timeout_seconds",
    "enable.idempotence": "it is always on",
    "message.timeout.ms": "use usage.kafka.timeout_seconds",
    "metadata.broker.list": "use usage.kafka.brokers",
    "partitioner": "keys are partitioned as by Java clients",
    "request.required.acks": "it is always `all`",
    "security.protocol": "use usage.kafka.tls and usage.kafka.sasl_username",
    "transactional.id": "transactions are not supported",
}
_SECRET = re.compile(r"password|secret|\.pem$|token|oauthbearer\.config|\.key\.|^sasl\.username$")


def _options(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for name, one in value.items():
        if name in _OWN:
            raise ValueError(f"{name!r} cannot be set here: {_OWN[name]}")
        if _SECRET.search(name):
            raise PydanticCustomError(
                HOLDS_SECRET,
                "{name} cannot be set here, because options are not secret: use "
                "usage.kafka.tls_key, "
                "usage.kafka.sasl_username or usage.kafka.sasl_password",
                {"name": name},
            )
        if not isinstance(one, (str, int, float)):
            raise ValueError(f"{name!r} must be a string, a number, true or false")
    return value


KafkaOptions = Annotated[JsonTable, AfterValidator(_options)]
"""Properties of librdkafka as a JSON object."""


class KafkaSettings(SettingsGroup):
    """The broker that usage records are delivered to."""

    brokers: SomeEndpoints = Field(
        (),
        description="bootstrap brokers, host:port, separated by commas; none: no delivery to Kafka",
    )
    topic: str = Field(
        "baton-usage",
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="topic that records are written to; it must exist, unless brokers create "
        "topics",
    )
    timeout_seconds: float = Field(
        15,
        ge=1,
        le=300,
        description="time for brokers to acknowledge a batch; then it is sent again",
    )
    tls: bool = Field(False, description="encrypt connections, and verify the brokers' names")
    tls_ca: Path | None = Field(
        None,
        description="certificate authorities to trust; none: the system's",
    )
    tls_cert: Path | None = Field(None, description="client certificate, if brokers require one")
    tls_key: Path | None = Field(None, description="private key of that certificate")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism; PLAIN needs tls"
    )
    sasl_username: str = Field("", description="SASL user; empty: no authentication")
    sasl_password: SecretStr = Field(SecretStr(""), description="password of that user")
    options: KafkaOptions = Field(
        {},
        description='further properties of librdkafka, such as {"compression.type": "zstd"}',
    )
