"""Sampling parameters that a checkpoint recommends, in generation_config.json."""

from pathlib import Path

import msgspec

from baton.engine.support.documents import CheckpointError
from baton.sampling import InvalidParameterError, SamplingParams, check

FILE = "generation_config.json"


class _Document(msgspec.Struct):
    """What vLLM takes of the file; the rest is of other decoders."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None


def read_sampling_defaults(directory: Path) -> SamplingParams:
    """Return the parameters of requests that do not say them; none if there is no such file.

    Raises:
        CheckpointError: the file is damaged, or recommends what no request may ask for.
    """
    path = directory / FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return SamplingParams()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    said = msgspec.structs.asdict(document)
    said["max_tokens"] = said.pop("max_new_tokens")
    if said["top_k"] == -1:  # vLLM's other way to say all
        said["top_k"] = 0
    defaults = SamplingParams.from_options(said)
    try:
        check(defaults)
    except InvalidParameterError as error:
        raise CheckpointError(
            f"{path} recommends {error.field} {error}: change it, or set "
            "BATON_ENGINE_SAMPLING_DEFAULTS to none."
        ) from None
    return defaults
