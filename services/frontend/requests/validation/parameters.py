"""The validator's part for sampling parameters, and for a stream that is resumed with them."""

from baton import sampling
from baton.errors import invalid_field
from services.frontend.requests.refusals import out_of_range
from services.frontend.requests.request import GenerationRequest

_LEAST_INT64, _MOST_INT64 = -(2**63), 2**63 - 1


def check_parameters(request: GenerationRequest) -> None:
    """Check the parameters of a request, whatever its model.

    Raises:
        BatonError: the first invalid field.
    """
    truncated = request.prompt_options.truncate_tokens
    if truncated is not None and (truncated < -1 or truncated == 0):
        raise invalid_field(
            "truncate_prompt_tokens", f"{truncated} is out of range: at least 1, or -1"
        )
    try:
        sampling.check(request.sampling, request.names)
    except sampling.InvalidParameterError as error:
        raise invalid_field(error.field, str(error)) from None
    if request.resume is not None:
        if request.n != 1:
            raise invalid_field("resume", f"requires n = 1, not {request.n}")
        seed = request.resume.seed
        if not _LEAST_INT64 <= seed <= _MOST_INT64:
            raise out_of_range("resume.seed", seed, _LEAST_INT64, _MOST_INT64)
        had, most = len(request.resume.output_ids), request.sampling.max_tokens
        if most is not None and had > most:
            raise invalid_field("resume.output_ids", f"{had} tokens exceed max_tokens ({most})")
