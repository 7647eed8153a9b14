"""The fields of a completion's body, and which of them are supported.

The fields are those of OpenAI's reference and of vLLM 0.32. A field is supported, ignored because
it cannot change the output, or not supported: then only values without an effect are accepted.
Supported fields have their types in `schema`; the others follow from this table, as does the one in
docs/api.md. The parameters of `baton.sampling` are fields, with the text of its table, except those
in OTHER_SHAPE. Any other field is an error that names it, unless `http.unknown_fields` is `ignore`.
"""

from baton.sampling import PARAMETERS
from services.frontend.openai.request.field import Body, Field, Treatment

_SERVED, _IGNORED, _REFUSED = Treatment.SERVED, Treatment.IGNORED, Treatment.REFUSED
_CHAT, _COMPLETION, _BOTH = Body.CHAT, Body.COMPLETION, Body.BOTH
_NO_MEDIA = "prompts are text"

OTHER_SHAPE = (
    *("bad_words", "grammar", "logit_bias", "logprobs", "max_tokens", "prompt_logprobs"),
    "stop",
)
"""Parameters of `baton.sampling` that bodies have in another shape, or under other names."""

FIELDS = (
    Field(
        "model", _BOTH, _SERVED, "a model, an adapter, an alias, or `auto`: [rules](auto.md) choose"
    ),
    Field(
        "messages",
        _CHAT,
        _SERVED,
        "text, and pictures as data URLs; earlier messages unchanged",
    ),
    Field("prompt", _COMPLETION, _SERVED, "a string, strings, token ids, or lists of token ids"),
    Field("stream", _BOTH, _SERVED, "server-sent events"),
    Field(
        "stream_options",
        _BOTH,
        _SERVED,
        "`include_usage`, and vLLM's `continuous_usage_stats`: usage so far in every chunk",
    ),
    Field("n", _BOTH, _SERVED, "1 to 128"),
    Field(
        "best_of",
        _COMPLETION,
        _SERVED,
        "generate this many outputs and return the `n` most likely per token; not with `stream`; "
        "0: unset",
    ),
    Field("max_tokens", _BOTH, _SERVED, "0: only the prompt; unset: up to the context's end"),
    Field("max_completion_tokens", _CHAT, _SERVED, "newer name of `max_tokens`"),
    Field(
        "suffix",
        _COMPLETION,
        _SERVED,
        "text after the output (fill in the middle), for models with tokens for it (Qwen 2.5 "
        "Coder, StarCoder 2, DeepSeek Coder, Code Llama); otherwise rejected",
    ),
    Field("stop", _BOTH, _SERVED, "at most 4"),
    *(
        Field(each.name, _BOTH, _SERVED, each.note)
        for each in PARAMETERS
        if each.name not in OTHER_SHAPE
    ),
    Field(
        "bad_words",
        _BOTH,
        _SERVED,
        "at most 128; with and without a preceding space. Rejected, as other bans are, if they "
        "leave nothing of `allowed_token_ids` or of a structured output",
    ),
    Field(
        "logit_bias", _BOTH, _SERVED, "by token id; entries of 0 are ignored, whatever their key"
    ),
    Field(
        "logprobs",
        _BOTH,
        _SERVED,
        "chat: whether to return them; completions: number of alternatives",
    ),
    Field("top_logprobs", _CHAT, _SERVED, "0 to 20"),
    Field(
        "prompt_logprobs",
        _BOTH,
        _SERVED,
        "0 to 20, not with `stream`; the whole prompt is recomputed, cached or not",
    ),
    Field(
        "echo",
        _BOTH,
        _SERVED,
        "completions: return the prompt before the output, with its log probabilities if "
        "`logprobs` is set; chat: return the last message before the output, if the assistant "
        "wrote it",
    ),
    Field(
        "truncate_prompt_tokens",
        _BOTH,
        _SERVED,
        "keep this many; -1: as many as leave space for the output",
    ),
    Field("truncation_side", _BOTH, _SERVED, "`left` (default) or `right`"),
    Field(
        "add_special_tokens",
        _BOTH,
        _SERVED,
        "whether the tokenizer adds its special tokens around the text",
    ),
    Field("add_generation_prompt", _CHAT, _SERVED, "a parameter of the chat template"),
    Field("continue_final_message", _CHAT, _SERVED, "the output continues the last message"),
    Field(
        "chat_template_kwargs",
        _CHAT,
        _SERVED,
        "variables of the chat template, such as Qwen3's `enable_thinking`",
    ),
    Field("documents", _CHAT, _SERVED, "a variable of the chat template"),
    Field(
        "reasoning_effort",
        _CHAT,
        _SERVED,
        "a variable of the chat template; also sets `enable_thinking`: false for `none`, otherwise "
        "true",
    ),
    Field("return_token_ids", _BOTH, _SERVED, "return token ids in addition to text"),
    Field(
        "return_tokens_as_token_ids",
        _BOTH,
        _SERVED,
        "return `token_id:N` instead of a token's text",
    ),
    Field(
        "ttft_target_seconds",
        _BOTH,
        _SERVED,
        "target for the time to first token; 0: none; Baton only",
    ),
    Field(
        "timeout_seconds",
        _BOTH,
        _SERVED,
        "deadline of the whole response; 0: `limits.default_deadline_seconds`; Baton only",
    ),
    Field(
        "baton",
        _BOTH,
        _SERVED,
        "an object: `fallback`, `allow` or `never`, is whether "
        "[another model](models.md#fallbacks) may answer; Baton only",
    ),
    Field("tenant", _BOTH, _SERVED, "must be the API key's tenant; Baton only"),
    # Tools and structured output.
    Field("tools", _CHAT, _SERVED, "functions and custom tools, at most 128"),
    Field(
        "tool_choice",
        _CHAT,
        _SERVED,
        "`none`, `auto`, `required`, a tool, or `allowed_tools`",
    ),
    Field("parallel_tool_calls", _CHAT, _SERVED, "false: at most one call"),
    Field(
        "functions",
        _CHAT,
        _SERVED,
        "older form of tools: a response has at most one `function_call`; with `tools` only if "
        "`function_call` is `none`",
    ),
    Field("function_call", _CHAT, _SERVED, "`none`, `auto`, or the name of a function"),
    Field(
        "response_format",
        _BOTH,
        _SERVED,
        "`text`, `json_object` or `json_schema`; without `strict: true`, unsupported keywords of "
        "the schema are ignored",
    ),
    Field(
        "structured_outputs",
        _BOTH,
        _SERVED,
        "one of `json`, `regex`, `choice`, `grammar` (Lark) and `json_object`",
    ),
    Field("guided_json", _BOTH, _SERVED, "older name of `structured_outputs.json`"),
    Field("guided_regex", _BOTH, _SERVED, "older name of `structured_outputs.regex`"),
    Field("guided_choice", _BOTH, _SERVED, "older name of `structured_outputs.choice`"),
    Field("guided_grammar", _BOTH, _SERVED, "older name of `structured_outputs.grammar`"),
    Field("include_reasoning", _CHAT, _SERVED, "false: omit `reasoning_content`"),
    Field(
        "store",
        _CHAT,
        _SERVED,
        "true: the completion is [stored](conversations.md#chat-completions) when it has ended. "
        "Refused without `conversations.enabled`",
    ),
    Field("metadata", _CHAT, _SERVED, "of a completion that is stored; otherwise ignored"),
    Field(
        "service_tier",
        _CHAT,
        _SERVED,
        "`flex`: the request can wait: it has the class batch and its "
        "[price](usage.md#requests-that-can-wait). Others: the API key determines the class. The "
        "response says `flex` or `default`",
    ),
    # Fields that cannot change the output.
    Field("user", _BOTH, _IGNORED, "the API key identifies the caller"),
    Field("safety_identifier", _CHAT, _IGNORED, "the API key identifies the caller"),
    Field("prediction", _CHAT, _IGNORED, "it affects latency, not output"),
    Field("prompt_cache_key", _CHAT, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_options", _CHAT, _IGNORED, "the prefix cache matches tokens"),
    Field("prompt_cache_retention", _CHAT, _IGNORED, "the operator sets how long KV is kept"),
    Field("audio", _CHAT, _IGNORED, "it only applies to audio, which `modalities` requests"),
    Field("session_id", _BOTH, _IGNORED, "the prefix cache matches tokens"),
    Field("request_id", _BOTH, _IGNORED, "the header x-request-id names a request"),
    Field("spaces_between_special_tokens", _BOTH, _IGNORED, "token texts are returned unchanged"),
    Field(
        "length_penalty", _BOTH, _IGNORED, "it only applies to beam search, which is not supported"
    ),
    Field(
        "early_stopping", _BOTH, _IGNORED, "it only applies to beam search, which is not supported"
    ),
    Field("stream_interval", _BOTH, _IGNORED, "chunks follow the tokens; the text is the same"),
    Field("media_io_kwargs", _CHAT, _IGNORED, _NO_MEDIA),
    Field("mm_processor_kwargs", _CHAT, _IGNORED, _NO_MEDIA),
    Field("mm_payload", _BOTH, _IGNORED, _NO_MEDIA),
    # Fields that would change the output, or promise something that Baton does not do.
    Field("modalities", _CHAT, _REFUSED, "output is text; omit it", (["text"],)),
    Field("verbosity", _CHAT, _REFUSED, "ask for it in a message", ("medium",)),
    Field("web_search_options", _CHAT, _REFUSED, "nothing is searched; omit it"),
    Field("moderation", _CHAT, _REFUSED, "nothing is moderated; omit it"),
    Field("best_of", _CHAT, _REFUSED, "request n choices, and select one", (0, 1)),
    Field("use_beam_search", _BOTH, _REFUSED, "best_of is the closest alternative", (False,)),
    Field("chat_template", _CHAT, _REFUSED, "the model's own is used; omit it"),
    Field(
        "priority",
        _BOTH,
        _REFUSED,
        "the API key's tier sets the highest class; omit it",
        (0,),
    ),
    Field("thinking_token_budget", _BOTH, _REFUSED, "max_tokens limits the whole response"),
    Field("repetition_detection", _BOTH, _REFUSED, "repetition_penalty is the closest alternative"),
    Field("watermarking", _BOTH, _REFUSED, "omit it", (False,)),
    Field(
        "logprob_token_ids", _BOTH, _REFUSED, "top_logprobs reports the most likely tokens", ([],)
    ),
    Field("prompt_embeds", _COMPLETION, _REFUSED, "send the prompt as text or token ids"),
    Field("cache_salt", _BOTH, _REFUSED, "each tenant has its own salt; omit it"),
    Field("kv_transfer_params", _BOTH, _REFUSED, "the router decides where KV goes; omit it"),
    Field("ec_transfer_params", _BOTH, _REFUSED, f"{_NO_MEDIA}; omit it"),
    Field("vllm_xargs", _BOTH, _REFUSED, "omit it", ({},)),
    Field("logits_processors", _BOTH, _REFUSED, "Baton runs no client code; omit it", ([],)),
    Field("routed_experts_prompt_start", _BOTH, _REFUSED, "omit it", (0,)),
    Field("return_token_offsets", _BOTH, _REFUSED, "text_offset of logprobs has them", (False,)),
    Field("return_prompt_text", _CHAT, _REFUSED, "omit it", (False,)),
    Field("return_mm_kwargs", _BOTH, _REFUSED, f"{_NO_MEDIA}; omit it", (False,)),
)
"""In the order of docs/api.md."""


def fields_of(body: Body) -> list[Field]:
    """Return the fields of a kind of completion."""
    return [each for each in FIELDS if each.belongs_to(body)]
