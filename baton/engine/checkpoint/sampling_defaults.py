"""Sampling parameters that a checkpoint recommends, in generation_config.json."""

from pathlib import Path

import msgspec

from baton.engine.support.documents import CheckpointError
from baton.sampling import PARAMETERS, InvalidParameterError, SamplingParams, check

FILE = "generation_config.json"


_READ = [each for each in PARAMETERS if each.traits.checkpoint]
"""Parameters that vLLM reads from the file; the rest are for other decoders."""
_GenerationConfigJson = msgspec.defstruct(
    "_GenerationConfigJson", [(each.traits.checkpoint, each.type | None, None) for each in _READ]
)


def read_sampling_defaults(directory: Path) -> SamplingParams:
    """Return the default parameters of requests; none if there is no such file.

    Raises:
        CheckpointError: the file is damaged, or recommends a value that no request may use.
    """
    path = directory / FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_GenerationConfigJson)
    except FileNotFoundError:
        return SamplingParams()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    defaults = SamplingParams.from_vllm_options(
        {each.name: getattr(document, each.traits.checkpoint) for each in _READ}
    )
    try:
        check(defaults)
    except InvalidParameterError as error:
        raise CheckpointError(
            f"{path} recommends {error.field} {error}: change it, or set "
            "BATON_ENGINE_SAMPLING_DEFAULTS to none."
        ) from None
    return defaults
