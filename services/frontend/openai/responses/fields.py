"""The fields of a response's body, and which of them are supported, as in `request.fields`."""

from baton.sampling import PARAMETERS
from services.frontend.openai.request.field import Body, Field, Treatment
from services.frontend.openai.request.fields import OTHER_SHAPE

_BODY = Body.RESPONSES
_SERVED, _IGNORED, _REFUSED = Treatment.SERVED, Treatment.IGNORED, Treatment.REFUSED
_STATELESS = "not supported yet"

RESPONSE_FIELDS = (
    Field("model", _BODY, _SERVED, "a model or an adapter"),
    Field(
        "input",
        _BODY,
        _SERVED,
        "a text, or items: messages (text, and pictures as data URLs), reasoning, calls of "
        "functions and custom tools, and their outputs, as responses have them",
    ),
    Field("instructions", _BODY, _SERVED, "a message of the system before the input"),
    Field("stream", _BODY, _SERVED, "server-sent events"),
    Field("max_output_tokens", _BODY, _SERVED, "unset: up to the context's end"),
    Field("stop", _BODY, _SERVED, "at most 4; not OpenAI's"),
    *(
        Field(each.name, _BODY, _SERVED, each.note)
        for each in PARAMETERS
        if each.name not in OTHER_SHAPE
    ),
    Field("top_logprobs", _BODY, _SERVED, "0 to 20; or `include` `message.output_text.logprobs`"),
    Field(
        "include",
        _BODY,
        _SERVED,
        "`message.output_text.logprobs`; `reasoning.encrypted_content`: reasoning is also returned "
        "sealed, for clients that send that alone back; what other values name is made by tools "
        "that are left out",
    ),
    Field(
        "tools",
        _BODY,
        _SERVED,
        "functions and custom tools, also in namespaces, at most 128; tools of other types are "
        "left out, and named in `baton.left_out` and in the header `x-baton-left-out`",
    ),
    Field("tool_choice", _BODY, _SERVED, "`none`, `auto`, `required`, a tool, or `allowed_tools`"),
    Field("parallel_tool_calls", _BODY, _SERVED, "false: at most one call"),
    Field(
        "text",
        _BODY,
        _SERVED,
        "`format`: `text`, `json_object` or `json_schema`; without `strict: true`, unsupported "
        "keywords of the schema are ignored",
    ),
    Field(
        "reasoning",
        _BODY,
        _SERVED,
        "`effort`: a variable of the chat template; also sets `enable_thinking`: false for "
        "`none`, otherwise true. Reasoning is returned as it is, not as a summary; `context` and "
        "`mode` are refused unless they are `auto` and `standard`",
    ),
    Field("metadata", _BODY, _SERVED, "returned with the response"),
    Field(
        "truncation",
        _BODY,
        _SERVED,
        "`disabled` or `auto`: [leave out the oldest turns](#context-windows) of an input that "
        "does not fit",
    ),
    Field(
        "context_management",
        _BODY,
        _SERVED,
        '`[{"type": "compaction", "compact_threshold": …}]`: after the answer, '
        "[a summary](conversations.md#summaries) of a stored conversation is written if it is "
        "longer than so many tokens, at least 512",
    ),
    Field(
        "store",
        _BODY,
        _SERVED,
        "whether the response is [stored](conversations.md); unset: true where "
        "`conversations.enabled` is on. Without it, true is refused",
    ),
    Field(
        "previous_response_id",
        _BODY,
        _SERVED,
        "a stored response that this one continues; its instructions are not carried over. Refused "
        "without `conversations.enabled`",
    ),
    Field(
        "conversation",
        _BODY,
        _SERVED,
        "a [conversation](conversations.md#conversations), or its id: all its items are before the "
        "input, and input and output are added to it; not with `previous_response_id` or `store` "
        "false. Refused without `conversations.enabled`",
    ),
    Field(
        "background",
        _BODY,
        _SERVED,
        "the response goes on without its client, "
        "[in the background](conversations.md#in-the-background); it must be stored",
    ),
    Field("chat_template_kwargs", _BODY, _SERVED, "variables of the chat template; not OpenAI's"),
    Field(
        "ttft_target_seconds",
        _BODY,
        _SERVED,
        "target for the time to first token; 0: none; Baton only",
    ),
    Field(
        "baton",
        _BODY,
        _SERVED,
        "an object: `fallback`, `allow` or `never`, is whether "
        "[another model](models.md#fallbacks) may answer; Baton only",
    ),
    Field(
        "timeout_seconds",
        _BODY,
        _SERVED,
        "deadline of the whole response; 0: `limits.default_deadline_seconds`; Baton only",
    ),
    Field("tenant", _BODY, _SERVED, "must be the API key's tenant; Baton only"),
    Field(
        "service_tier",
        _BODY,
        _SERVED,
        "`flex`: the request can wait: it has the class batch and its "
        "[price](usage.md#requests-that-can-wait). Others: the API key determines the class. The "
        "response says `flex` or `default`",
    ),
    Field(
        "background_options",
        _BODY,
        _SERVED,
        "`completion_window` of a response in the background: `2h` or `8h` is its deadline, unless "
        "`timeout_seconds` is set, and its class is that of `flex`; `soonest`: as any other",
    ),
    # Fields that cannot change the output.
    Field("user", _BODY, _IGNORED, "the API key identifies the caller"),
    Field("safety_identifier", _BODY, _IGNORED, "the API key identifies the caller"),
    Field("client_metadata", _BODY, _IGNORED, "nothing reads it"),
    Field("prompt_cache_key", _BODY, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_options", _BODY, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_retention", _BODY, _IGNORED, "the operator sets how long KV is kept"),
    Field("stream_options", _BODY, _IGNORED, "events are not padded, and the last one has usage"),
    Field("max_tool_calls", _BODY, _IGNORED, "it limits tools that the server runs; none does"),
    Field("access_programs", _BODY, _IGNORED, "there are none"),
    Field("image", _BODY, _IGNORED, "how a model sees a picture is fixed"),
    # Fields that would change the output, or promise something that Baton does not do.
    Field("prompt", _BODY, _REFUSED, f"{_STATELESS}; send its text as instructions"),
    Field("moderation", _BODY, _REFUSED, "nothing is moderated; omit it"),
)
"""In the order of docs/api.md."""
