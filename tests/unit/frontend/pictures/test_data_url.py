"""Which pictures a conversation may have, and what is said of the others."""

import base64
from hashlib import sha256

import pytest

from baton.engine.testing.random_vision import random_png
from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from services.frontend.pictures.data_url import PictureUrl, check_urls, read_pictures

LIMITS = FrontendLimits(max_pictures=2, max_picture_bytes=2048, max_picture_pixels=5000)
FIELD = "messages[0].content[1].image_url"


def url_of(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def read(*urls: str) -> list[bytes]:
    pictures = [PictureUrl(url, FIELD) for url in urls]
    check_urls(pictures, LIMITS)
    read = read_pictures(pictures, LIMITS)
    assert [one.digest for one in read] == [sha256(one.data).digest() for one in read]
    return [one.data for one in read]


def test_a_picture_is_the_bytes_that_were_sent() -> None:
    data = random_png(1)
    assert read(url_of(data), url_of(data, "image/jpeg")) == [data, data]
    assert read(f"DATA:Image/PNG;name=a;Base64,{base64.b64encode(data).decode()}") == [data]


@pytest.mark.parametrize(
    ("url", "reason", "said"),
    [
        (
            "https://example.org/a.png",
            Reason.UNSUPPORTED_PARAMETER,
            "https: URLs are not supported; send the picture itself as a data URL "
            "(data:image/png;base64,…)",
        ),
        ("file:///etc/passwd", Reason.UNSUPPORTED_PARAMETER, "file: URLs are not supported"),
        ("", Reason.UNSUPPORTED_PARAMETER, "is not a data URL"),
        ("iVBORw0KGgo=", Reason.UNSUPPORTED_PARAMETER, "is not a data URL"),
        (
            url_of(b"x", "image/bmp"),
            Reason.UNSUPPORTED_PARAMETER,
            "'image/bmp' is not supported; only image/png, image/jpeg, image/webp, image/gif are",
        ),
        (url_of(b"x", "audio/wav"), Reason.UNSUPPORTED_PARAMETER, "'audio/wav' is not supported"),
        ("data:,x", Reason.UNSUPPORTED_PARAMETER, "'' is not supported"),
        ("data:image/png,x", Reason.INVALID_FIELD, "must be encoded in base64"),
        ("data:image/png;base64", Reason.INVALID_FIELD, "must begin like data:image/png;base64,"),
        ("data:image/png;base64,a", Reason.INVALID_FIELD, "the data URL is not valid base64"),
        ("data:image/png;base64,é", Reason.INVALID_FIELD, "the data URL is not valid base64"),
        (
            url_of(b"no picture"),
            Reason.INVALID_FIELD,
            "the data is not a picture; supported are image/png, image/jpeg, image/webp, image/gif",
        ),
        (
            url_of(random_png(0, 51, 100)),
            Reason.INVALID_FIELD,
            "51 × 100 pixels exceed the limit of 5000 pixels; send a smaller picture",
        ),
        (
            url_of(b"x" * 2049),
            Reason.INVALID_FIELD,
            "the data is not a picture",
        ),
        (
            url_of(b"x" * 4096),
            Reason.INVALID_FIELD,
            "the request's pictures exceed the limit of 2048 bytes; send smaller ones",
        ),
    ],
)
def test_what_is_refused_is_said(url: str, reason: Reason, said: str) -> None:
    with pytest.raises(BatonError) as caught:
        read(url)
    assert (caught.value.reason, caught.value.field) == (reason, FIELD)
    assert caught.value.message.startswith(f"{FIELD}: {said}")


def test_pictures_are_bounded_together() -> None:
    data = url_of(random_png(1, 40, 20))
    with pytest.raises(BatonError, match="3 pictures exceed the limit of 2"):
        read(data, data, data)
    padded = url_of(random_png(1, 40, 20) + b"x" * 1000)
    assert len(read(padded)) == 1
    with pytest.raises(BatonError, match="the request's pictures exceed the limit of 2048 bytes"):
        read(padded, padded)
