"""Pictures among the tokens of a prompt."""

from collections.abc import Sequence
from typing import NamedTuple

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.kv.keys import PlaceholderRun
from services.frontend.pictures.data_url import Picture


class PlacedPictures(NamedTuple):
    """The pictures of a prompt, in order."""

    runs: tuple[PlaceholderRun, ...] = ()
    """The tokens that stand for each."""
    data: tuple[bytes, ...] = ()
    """Each picture, encoded, as the client sent it."""


NO_PICTURES = PlacedPictures()


def place_pictures(
    ids: Sequence[int], pictures: Sequence[Picture], tokens: cluster_pb2.PictureTokens
) -> tuple[list[int], PlacedPictures]:
    """Return a prompt in which each placeholder has become its picture's tokens.

    Args:
        ids: the conversation, as the chat template wrote it, with a placeholder per picture.
        pictures: in order.
        tokens: what stands for a picture.

    Raises:
        BatonError: TEMPLATE_FAILED: the template wrote another number of placeholders.
    """
    written = sum(token == tokens.placeholder for token in ids)
    if written != len(pictures):
        raise BatonError(
            Reason.TEMPLATE_FAILED,
            f"the model's chat template wrote {written} placeholders for {len(pictures)} pictures",
            field="messages",
        )
    placed: list[int] = []
    runs: list[PlaceholderRun] = []
    for token in ids:
        if token != tokens.placeholder:
            placed.append(token)
            continue
        runs.append(PlaceholderRun(len(placed), len(tokens.tokens), pictures[len(runs)].digest))
        placed += tokens.tokens
    return placed, PlacedPictures(tuple(runs), tuple(one.data for one in pictures))
