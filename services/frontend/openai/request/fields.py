"""Every field of a completion's body, and what becomes of it.

The fields are those of OpenAI's reference and of vLLM 0.32. A field is served, ignored because it
cannot change the output, or refused unless its value asks for nothing. Served fields have their
types in `schema`; the others follow from this table, as does the one in docs/api.md. A field that
is not here is refused by name, unless the setting `http.unknown_fields` says otherwise.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Treatment(Enum):
    """What becomes of a field."""

    SERVED = "served"
    IGNORED = "ignored"
    REFUSED = "refused"


class Body(Enum):
    """Whose field it is."""

    CHAT = "chat"
    COMPLETION = "completions"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a body."""

    name: str
    body: Body
    treatment: Treatment
    note: str
    """What it does, why it changes nothing, or what to do instead: part of a sentence."""
    nothing: tuple[Any, ...] = ()
    """Of a refused field: the values, besides null, that ask for nothing."""

    def belongs_to(self, body: Body) -> bool:
        return self.body in (body, Body.BOTH)


_SERVED, _IGNORED, _REFUSED = Treatment.SERVED, Treatment.IGNORED, Treatment.REFUSED
_CHAT, _COMPLETION, _BOTH = Body.CHAT, Body.COMPLETION, Body.BOTH
_NO_MEDIA = "prompts are text"

FIELDS = (
    Field("model", _BOTH, _SERVED, "a model or an adapter"),
    Field("messages", _CHAT, _SERVED, "text only; what was said before is taken as it was given"),
    Field("prompt", _COMPLETION, _SERVED, "a text, texts, token ids, or lists of token ids"),
    Field("stream", _BOTH, _SERVED, "server-sent events"),
    Field(
        "stream_options",
        _BOTH,
        _SERVED,
        "`include_usage`, and vLLM's `continuous_usage_stats`: usage so far with every chunk",
    ),
    Field("n", _BOTH, _SERVED, "1 to 128"),
    Field(
        "best_of",
        _COMPLETION,
        _SERVED,
        "the `n` likeliest per token of so many, not streamed; 0 is as if it were not there",
    ),
    Field("max_tokens", _BOTH, _SERVED, "0: the prompt alone; not there: what the context leaves"),
    Field("max_completion_tokens", _CHAT, _SERVED, "the newer name of max_tokens"),
    Field(
        "suffix",
        _COMPLETION,
        _SERVED,
        "what the output leads to, where the model has tokens for it (Qwen 2.5 Coder, StarCoder 2, "
        "DeepSeek Coder, Code Llama), else refused",
    ),
    Field("min_tokens", _BOTH, _SERVED, "no end before so many"),
    Field("temperature", _BOTH, _SERVED, "0 to 2"),
    Field("top_p", _BOTH, _SERVED, "0 to 1; 0 keeps the likeliest token"),
    Field("top_k", _BOTH, _SERVED, "0 or -1: all"),
    Field("min_p", _BOTH, _SERVED, "0 to 1"),
    Field("seed", _BOTH, _SERVED, "the same seed, the same draws"),
    Field("presence_penalty", _BOTH, _SERVED, "-2 to 2"),
    Field("frequency_penalty", _BOTH, _SERVED, "-2 to 2"),
    Field("repetition_penalty", _BOTH, _SERVED, "above 0, up to 2"),
    Field("logit_bias", _BOTH, _SERVED, "by token id; an entry of 0 is left out, whatever its key"),
    Field("logprobs", _BOTH, _SERVED, "chat: whether; completions: how many alternatives"),
    Field("top_logprobs", _CHAT, _SERVED, "0 to 20"),
    Field(
        "prompt_logprobs",
        _BOTH,
        _SERVED,
        "0 to 20, not streamed; the prompt is computed anew, cached or not",
    ),
    Field(
        "echo",
        _BOTH,
        _SERVED,
        "completions: the prompt before the output, with its log probabilities where `logprobs` is "
        "given; chat: the last message before the output, where the assistant said it",
    ),
    Field("stop", _BOTH, _SERVED, "at most 4"),
    Field("stop_token_ids", _BOTH, _SERVED, "at most 256"),
    Field("include_stop_str_in_output", _BOTH, _SERVED, "also of stop tokens"),
    Field("ignore_eos", _BOTH, _SERVED, "go on after the model's end of sequence"),
    Field("allowed_token_ids", _BOTH, _SERVED, "at most 1024"),
    Field(
        "bad_words",
        _BOTH,
        _SERVED,
        "at most 128; with and without a space before them. Refused, as other bans are, where they "
        "leave nothing of `allowed_token_ids` or of a form",
    ),
    Field("bad_word_ids", _BOTH, _SERVED, "the same as runs of token ids; no other server has it"),
    Field("skip_special_tokens", _BOTH, _SERVED, "false: special tokens are written"),
    Field("truncate_prompt_tokens", _BOTH, _SERVED, "keep so many; -1: what leaves room"),
    Field("truncation_side", _BOTH, _SERVED, "`left`, as if it were not there, or `right`"),
    Field("add_special_tokens", _BOTH, _SERVED, "those that the tokenizer adds around a text"),
    Field("add_generation_prompt", _CHAT, _SERVED, "of the chat template"),
    Field("continue_final_message", _CHAT, _SERVED, "the output goes on with the last message"),
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
        "a variable of the chat template, and `enable_thinking`: whether it is not `none`",
    ),
    Field("return_token_ids", _BOTH, _SERVED, "token ids beside texts"),
    Field("return_tokens_as_token_ids", _BOTH, _SERVED, "`token_id:N` for a token's text"),
    Field(
        "ttft_target_seconds",
        _BOTH,
        _SERVED,
        "the first token is wanted within so long; 0: no such wish; no other server has it",
    ),
    Field(
        "timeout_seconds",
        _BOTH,
        _SERVED,
        "a deadline for the whole answer; 0: `limits.default_deadline_seconds`; no other server "
        "has it",
    ),
    Field("tenant", _BOTH, _SERVED, "the API key's own, or refused; no other server has it"),
    # Tools and forms of the output.
    Field("tools", _CHAT, _SERVED, "functions, at most 128"),
    Field(
        "tool_choice",
        _CHAT,
        _SERVED,
        "`none`, `auto`, `required`, a function, or `allowed_tools`",
    ),
    Field("parallel_tool_calls", _CHAT, _SERVED, "false: at most one call"),
    Field(
        "functions",
        _CHAT,
        _SERVED,
        "the older form of tools: an answer has one `function_call` at most; beside tools only "
        "where `function_call` is `none`",
    ),
    Field("function_call", _CHAT, _SERVED, "`none`, `auto`, or the name of a function"),
    Field(
        "response_format",
        _BOTH,
        _SERVED,
        "`text`, `json_object` or `json_schema`, whose schema is kept as far as it can be where "
        "`strict` is not true",
    ),
    Field(
        "structured_outputs",
        _BOTH,
        _SERVED,
        "one of `json`, `regex`, `choice`, `grammar` (Lark) and `json_object`",
    ),
    Field("guided_json", _BOTH, _SERVED, "the older name of `structured_outputs.json`"),
    Field("guided_regex", _BOTH, _SERVED, "the older name of `structured_outputs.regex`"),
    Field("guided_choice", _BOTH, _SERVED, "the older name of `structured_outputs.choice`"),
    Field("guided_grammar", _BOTH, _SERVED, "the older name of `structured_outputs.grammar`"),
    Field("include_reasoning", _CHAT, _SERVED, "false: `reasoning_content` is left out"),
    # What changes no output.
    Field("user", _BOTH, _IGNORED, "who asks is the API key's"),
    Field("safety_identifier", _CHAT, _IGNORED, "who asks is the API key's"),
    Field("metadata", _CHAT, _IGNORED, "nothing is stored"),
    Field("service_tier", _CHAT, _IGNORED, "the tier is the API key's"),
    Field("prediction", _CHAT, _IGNORED, "it makes answers faster, not others"),
    Field("prompt_cache_key", _CHAT, _IGNORED, "what is cached is found by its tokens"),
    Field("prompt_cache_options", _CHAT, _IGNORED, "what is cached is found by its tokens"),
    Field("prompt_cache_retention", _CHAT, _IGNORED, "how long is the operator's to say"),
    Field("audio", _CHAT, _IGNORED, "how audio sounds, which `modalities` asks for"),
    Field("session_id", _BOTH, _IGNORED, "the next turn finds its cache by its tokens"),
    Field("request_id", _BOTH, _IGNORED, "the header x-request-id names a request"),
    Field("spaces_between_special_tokens", _BOTH, _IGNORED, "texts of tokens stand as they are"),
    Field("length_penalty", _BOTH, _IGNORED, "of beam search, which is refused"),
    Field("early_stopping", _BOTH, _IGNORED, "of beam search, which is refused"),
    Field(
        "stream_interval", _BOTH, _IGNORED, "chunks are cut as tokens come; the text is the same"
    ),
    Field("media_io_kwargs", _CHAT, _IGNORED, _NO_MEDIA),
    Field("mm_processor_kwargs", _CHAT, _IGNORED, _NO_MEDIA),
    Field("mm_payload", _BOTH, _IGNORED, _NO_MEDIA),
    # What would change an output, or promises what is not kept.
    Field("store", _CHAT, _REFUSED, "nothing is stored; leave it out", (False,)),
    Field("modalities", _CHAT, _REFUSED, "answers are text; leave it out", (["text"],)),
    Field("verbosity", _CHAT, _REFUSED, "ask for it in a message", ("medium",)),
    Field("web_search_options", _CHAT, _REFUSED, "nothing is searched; leave it out"),
    Field("moderation", _CHAT, _REFUSED, "nothing is moderated; leave it out"),
    Field("best_of", _CHAT, _REFUSED, "ask for n, and choose", (0, 1)),
    Field("use_beam_search", _BOTH, _REFUSED, "best_of is the nearest to it", (False,)),
    Field("chat_template", _CHAT, _REFUSED, "the model's own is used; leave it out"),
    Field(
        "priority",
        _BOTH,
        _REFUSED,
        "the API key's tier says which class is the highest; leave it out",
        (0,),
    ),
    Field("thinking_token_budget", _BOTH, _REFUSED, "max_tokens bounds the whole answer"),
    Field("repetition_detection", _BOTH, _REFUSED, "repetition_penalty is the nearest to it"),
    Field("watermarking", _BOTH, _REFUSED, "leave it out", (False,)),
    Field("logprob_token_ids", _BOTH, _REFUSED, "top_logprobs reports the likeliest tokens", ([],)),
    Field("prompt_embeds", _COMPLETION, _REFUSED, "send the prompt as text or token ids"),
    Field("cache_salt", _BOTH, _REFUSED, "each tenant has its own; leave it out"),
    Field("kv_transfer_params", _BOTH, _REFUSED, "the router decides where KV goes; leave it out"),
    Field("ec_transfer_params", _BOTH, _REFUSED, f"{_NO_MEDIA}; leave it out"),
    Field("vllm_xargs", _BOTH, _REFUSED, "leave it out", ({},)),
    Field(
        "logits_processors", _BOTH, _REFUSED, "no code of clients runs here; leave it out", ([],)
    ),
    Field("routed_experts_prompt_start", _BOTH, _REFUSED, "leave it out", (0,)),
    Field("return_token_offsets", _BOTH, _REFUSED, "text_offset of logprobs has them", (False,)),
    Field("return_prompt_text", _CHAT, _REFUSED, "leave it out", (False,)),
    Field("return_mm_kwargs", _BOTH, _REFUSED, f"{_NO_MEDIA}; leave it out", (False,)),
)
"""In the order of docs/api.md."""
