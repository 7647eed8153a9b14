"""What an engine that takes pictures has for them."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple


class PictureTokens(NamedTuple):
    """What stands in a prompt for a picture of any size."""

    placeholder: int
    """The token that the chat template writes for a picture."""
    tokens: tuple[int, ...]
    """The tokens that take its place; some of them are given the picture's embeddings."""


class PictureError(ValueError):
    """A picture cannot be decoded. The text is for the client."""


class PictureReader(ABC):
    """Decodes pictures for an engine, and scales them as its checkpoint says."""

    @abstractmethod
    def read(self, data: bytes) -> Any:
        """Return an element of `SequenceRequest.pictures`; any thread may call it, one at a time.

        Args:
            data: an encoded picture.

        Raises:
            PictureError: it cannot be decoded, or has more than `MAX_PICTURE_PIXELS`.
        """
