"""The fields of the body of `/v1/responses/compact`, as in `request.fields`."""

from services.frontend.openai.request.field import Body, Field, Treatment

_BODY = Body.COMPACT
_SERVED, _IGNORED = Treatment.SERVED, Treatment.IGNORED

COMPACT_FIELDS = (
    Field("model", _BODY, _SERVED, "the model or adapter that writes the summary"),
    Field("input", _BODY, _SERVED, "as of responses"),
    Field("instructions", _BODY, _SERVED, "shown to the model, and not part of the summary"),
    Field(
        "previous_response_id",
        _BODY,
        _SERVED,
        "a stored response, whose items are before the input. Refused without "
        "`conversations.enabled`",
    ),
    Field("timeout_seconds", _BODY, _SERVED, "as of responses; Baton only"),
    Field("baton", _BODY, _SERVED, "as of responses; Baton only"),
    Field("tenant", _BODY, _SERVED, "must be the API key's tenant; Baton only"),
    Field("service_tier", _BODY, _IGNORED, "the API key determines the tier"),
    Field("prompt_cache_key", _BODY, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_options", _BODY, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_retention", _BODY, _IGNORED, "the operator sets how long KV is kept"),
    Field("image", _BODY, _IGNORED, "how a model sees a picture is fixed"),
)
"""In the order of docs/api.md."""
