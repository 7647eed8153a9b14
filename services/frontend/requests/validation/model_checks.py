"""The validator's part for a request and its model: defaults, vocabulary, features of workers."""

import dataclasses

from msgspec.structs import replace

from baton import sampling
from baton.errors import BatonError, Reason, invalid_field
from services.frontend.models.model import ServedModel
from services.frontend.requests.request import GenerationRequest
from services.frontend.requests.validation.bans import check_bans
from services.frontend.requests.validation.prompts import check_tokens


def with_defaults(request: GenerationRequest, model: ServedModel) -> GenerationRequest:
    """Return the request with the model's defaults for the parameters that it does not set."""
    missing = {
        name: value
        for name, value in model.sampling_defaults.items()
        if name not in request.given and name != "max_tokens"  # depends on the prompt
    }
    if not missing:
        return request
    return dataclasses.replace(request, sampling=replace(request.sampling, **missing))


def check_model(request: GenerationRequest, model: ServedModel) -> None:
    """Check what depends on the model, except the prompt: token ids and features of its workers.

    Raises:
        BatonError: the first invalid field.
    """
    for field, feature in sampling.needed_features(request.sampling):
        if feature not in model.features:
            field = request.names.get(field, field)
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{field}: not supported by the workers of model {model.name!r}; omit it",
                field=field,
            )
    try:
        sampling.check_vocabulary(request.sampling, model.vocab_tokens)
    except sampling.InvalidParameterError as error:
        raise invalid_field(error.field, str(error)) from None
    check_bans(request.sampling, model, request.names)
    if request.resume is not None:
        if len(request.resume.output_ids) > model.context_tokens:
            raise invalid_field(
                "resume.output_ids",
                f"{len(request.resume.output_ids)} tokens exceed the model's context of "
                f"{model.context_tokens}",
            )
        check_tokens("resume.output_ids", request.resume.output_ids, model)
