"""Decoding of the JSON documents of a checkpoint."""

from pathlib import Path
from typing import TypeVar

import msgspec

CONFIG = "config.json"

D = TypeVar("D", bound=msgspec.Struct)


class CheckpointError(Exception):
    """A checkpoint cannot be used. The text is a sentence that names the file."""


def read_document(path: Path, kind: type[D]) -> D:
    """Return a JSON file of a checkpoint, decoded as `kind`, whose fields are those that are used.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing: set the model to a directory in Hugging Face layout."
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
