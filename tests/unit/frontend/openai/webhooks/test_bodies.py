"""What can be a webhook endpoint, and the sentences about what cannot."""

from typing import Any

import msgspec
import pytest

from baton.errors import BatonError
from baton.host.networks import AllowedNetworks
from baton.webhooks.events import EVENT_TYPES
from services.frontend.openai.webhooks.bodies import (
    read_endpoint,
    read_rotation,
    read_test,
    read_update,
)

PUBLIC = AllowedNetworks(("public",), "webhooks.allow")
OWN = AllowedNetworks(("10.0.0.0/8",), "webhooks.allow")
FIELDS: dict[str, Any] = {
    "name": "n",
    "url": "https://example.com:8443/hook?a=b",
    "event_types": list(EVENT_TYPES),
}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("url", "ftp://example.com", "must begin with https://"),
        ("url", "http://example.com", "must begin with https://"),
        ("url", "https://", "is not a URL"),
        ("url", "https://a b", "is not a URL"),
        ("url", "https://a\r\nx:y", "is not a URL"),
        ("url", "https://ä.example", "is not a URL"),
        ("url", "https://example.com:99999/", "is not a URL"),
        ("url", "https://[::1", "is not a URL"),
        ("url", "https://me:secret@example.com/", "must not have a user, a password"),
        ("url", "https://example.com/#there", "or a fragment"),
        ("url", "https://[::1]:8443/", "webhooks.allow"),
        ("url", "https://[::ffff:10.0.0.1]/", "webhooks.allow"),
        ("url", "https://[64:ff9b::7f00:1]/", "webhooks.allow"),
        ("url", "https://169.254.169.254/latest", "webhooks.allow"),
        ("url", "https://example.com/" + "a" * 2048, "longer than 2048"),
        ("event_types", [], "one or more of batch.completed"),
        ("event_types", ["eval.run.failed"], "'eval.run.failed' is no event"),
        ("event_types", ["batch.failed"] * 2, "more than once"),
        ("name", "", "1 to 256"),
        ("name", "n" * 257, "1 to 256"),
        ("name", None, "Expected `str`, got `null`"),
        ("secret", "whsec_", "unknown parameter"),
    ],
)
def test_what_cannot_be_one(field: str, value: Any, said: str) -> None:
    with pytest.raises(BatonError) as caught:
        read_endpoint(msgspec.json.encode(FIELDS | {field: value}), PUBLIC)
    assert caught.value.field == field
    assert said in caught.value.message
    assert "secret@" not in caught.value.message


def test_every_part_can_stay_as_it_is() -> None:
    assert read_endpoint(msgspec.json.encode(FIELDS), PUBLIC).url == FIELDS["url"]
    body = read_update(b"{}", PUBLIC)
    assert (body.name, body.url, body.event_types) == (None, None, None)
    for field, value in FIELDS.items():
        body = read_update(msgspec.json.encode({field: value}), PUBLIC)
        assert getattr(body, field) == value


def test_networks_of_the_cluster_may_be_without_tls() -> None:
    fields = FIELDS | {"url": "http://10.1.2.3/hook"}
    assert read_endpoint(msgspec.json.encode(fields), OWN).url == fields["url"]
    with pytest.raises(BatonError, match=r"webhooks\.allow"):
        read_endpoint(msgspec.json.encode(FIELDS | {"url": "http://192.168.0.1/"}), OWN)


def test_the_old_secret_stays_only_if_asked_for() -> None:
    assert not read_rotation(b"")
    assert not read_rotation(b"{}")
    assert read_rotation(b'{"keep_old_secret_active_for_24_hours": true}')


def test_samples_are_of_known_types() -> None:
    assert read_test(b'{"event_type": "batch.failed"}') == "batch.failed"
    with pytest.raises(BatonError, match="no event of this API"):
        read_test(b'{"event_type": "agent.session.idle"}')
