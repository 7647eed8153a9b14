"""Where pictures stand among a prompt's tokens."""

from hashlib import sha256

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.kv.keys import PlaceholderRun
from services.frontend.pictures.data_url import Picture
from services.frontend.pictures.placing import place_pictures

TOKENS = cluster_pb2.PictureTokens(placeholder=9, tokens=[8, 9, 9, 8])
FIRST, SECOND = (Picture(data, sha256(data).digest()) for data in (b"first", b"second"))


def test_each_placeholder_becomes_its_pictures_tokens() -> None:
    ids, placed = place_pictures([1, 9, 9, 2], [FIRST, SECOND], TOKENS)
    assert ids == [1, 8, 9, 9, 8, 8, 9, 9, 8, 2]
    assert placed.runs == (PlaceholderRun(1, 4, FIRST.digest), PlaceholderRun(5, 4, SECOND.digest))
    assert placed.data == (b"first", b"second")


@pytest.mark.parametrize("ids", [[1, 2], [9, 9, 1]])
def test_a_template_that_does_not_write_each_picture_is_refused(ids: list[int]) -> None:
    with pytest.raises(BatonError, match="placeholders for 1 pictures") as caught:
        place_pictures(ids, [FIRST], TOKENS)
    assert caught.value.reason is Reason.TEMPLATE_FAILED
