"""A request in the frontend: `GenerationRequest` as sent, `ResolvedRequest` once validated.

gRPC and HTTP both make a GenerationRequest; `validate` checks it, and `resolve` makes of it, with
its tokens, what runs. Names of fields are those of the OpenAI API where it has them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from baton.sampling import SamplingParams
from baton.v1 import common_pb2
from services.frontend.models.model import ServedModel
from services.frontend.output.definitions import ToolUse
from services.frontend.output.formats import AnswerReader
from services.frontend.text.chat_template import PLAIN, ChatMessage, TemplateOptions


@dataclass(frozen=True, slots=True)
class TextPrompt:
    field: ClassVar = "prompt"
    """Of the request, as errors name it."""
    text: str
    suffix: str = ""
    """What the output leads to; empty: anything."""


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    field: ClassVar = "prompt"
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    field: ClassVar = "messages"
    messages: Sequence[ChatMessage]
    options: TemplateOptions = PLAIN


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How token ids are made of a prompt."""

    add_special_tokens: bool | None = None
    """Whether those are added that the tokenizer adds around a text. None: to texts, not to
    conversations, whose template writes them."""
    truncate_tokens: int | None = None
    """Keep so many tokens of a longer prompt; -1: as many as leave room for the output. None: a
    prompt that is too long is refused."""
    keep_first: bool = False
    """Keep the first ones, not the last."""


WHOLE_PROMPT = PromptOptions()
"""All of it, with the special tokens that belong to its kind."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a cut-off stream goes on: after output_ids, with the seed that it had."""

    output_ids: Sequence[int]
    seed: int


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a client asked for, before any check."""

    model: str
    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    given: frozenset[str] = frozenset()
    """Names of the sampling parameters that it says, which the model's defaults do not replace."""
    prompt_options: PromptOptions = WHOLE_PROMPT
    strict_form: bool = True
    """Whether all of its grammar's schema is to be kept, or what cannot be is left out."""
    tools: ToolUse | None = None
    """What may be called, in a conversation; None: nothing."""
    n: int = 1
    resume: Resume | None = None
    execution_id: str = ""
    """Claims an execution of the tenant's; empty: claims none."""
    prompt_index: int = 0
    """Which of the prompts of one body it is: each is an execution."""
    prompt_count: int = 1
    """Of one body."""
    take_over: bool = False
    """An earlier execution with the same id ends, if there is one."""
    request_id: str = ""
    """A name, which other requests may have too. Never empty for what shall run; see `identify`."""
    tenant: str = ""
    priority: int = common_pb2.PRIORITY_CLASS_UNSPECIFIED
    ttft_target_seconds: float = 0.0
    """From its arrival, for its first token; 0: it has no such wish."""
    timeout_seconds: float = 0.0
    """That it may take, where its surface has no deadline of calls; 0: the default."""
    adapter: str = ""
    cache_scope: int = common_pb2.CACHE_SCOPE_UNSPECIFIED
    names: Mapping[str, str] = field(default_factory=dict)
    """What the client calls fields that have another name here, for errors."""


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request that is good to run: everything is resolved and within limits."""

    context: common_pb2.RequestContext
    """Who asks, for which model; attempt is 0."""
    model: ServedModel
    prompt: Sequence[int]
    """At least one token; with max_tokens it fits into the model's context."""
    sampling: common_pb2.SamplingParams
    """As workers get it: seed and max_tokens are set, stop strings are left out."""
    stop: tuple[str, ...]
    n: int
    no_output: bool = False
    """Nothing is asked for but the prompt; workers sample one token all the same."""
    include_stop: bool = False
    """What ends the output is part of its text."""
    special_text: bool = False
    """Special tokens have text."""
    prompt_logprobs: int | None = None
    """Alternatives to report with each prompt token's log probability; None: report nothing."""
    reader: AnswerReader | None = None
    """Reads reasoning and calls; None: outputs are nothing but text."""
    output_so_far: tuple[int, ...] = ()
    """Output tokens that the client has from a cut-off stream."""
    plainly_greedy: bool = False
    """No draw and no count of earlier tokens is in its output: it goes on the same anywhere."""
    adapter_digest: bytes = b""
    """Of the adapter that the context names: only workers that have it serve the request."""

    @property
    def id(self) -> str:
        return self.context.request_id

    @property
    def exact_continuation(self) -> bool:
        """Whether it goes on with the same tokens at another worker of those that were there."""
        return self.plainly_greedy or self.model.exact_continuation

    @property
    def most_tokens(self) -> int:
        """The most tokens of prompt and outputs that it may still come to."""
        output = 0 if self.no_output else self.n * self.sampling.max_tokens
        return len(self.prompt) + output - len(self.output_so_far)

    @property
    def named(self) -> str:
        """What answers, as HTTP clients name it: the adapter, or the model itself."""
        return self.context.adapter or self.model.name
