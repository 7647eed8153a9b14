"""A request in the frontend: `GenerationRequest` as sent, `ResolvedRequest` once validated.

gRPC and HTTP both create a GenerationRequest. `validate` checks it, and `resolve` combines it with
its tokens into a ResolvedRequest, which runs. Fields have the names of the OpenAI API if it has
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from baton.sampling import SamplingParams
from baton.v1 import common_pb2
from services.frontend.models.model import ProvidedBy, ServedModel
from services.frontend.output.definitions import ToolUse
from services.frontend.output.formats import AnswerReader
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.pictures.placing import NO_PICTURES, PlacedPictures
from services.frontend.text.chat_template import PLAIN, ChatMessage, TemplateOptions
from services.frontend.text.turns import WHOLE, TurnCut


@dataclass(frozen=True, slots=True)
class TextPrompt:
    field: ClassVar = "prompt"
    """The field of the request that errors name."""
    text: str
    suffix: str = ""
    """The text that the output leads to; empty: any."""


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    field: ClassVar = "prompt"
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    messages: Sequence[ChatMessage]
    options: TemplateOptions = PLAIN
    field: str = "messages"
    """The field of the request that errors name."""
    summaries: frozenset[int] = frozenset()
    """Indexes of messages that stand for earlier turns: they are left out as little as
    instructions are."""

    @property
    def pictures(self) -> list[PictureUrl]:
        """The pictures of all messages, in order."""
        return [one for message in self.messages for one in message.pictures]


Prompt = TextPrompt | TokenPrompt | ChatPrompt


class DroppedTurns(NamedTuple):
    """What a prompt leaves out of its conversation."""

    cut: TurnCut
    messages: frozenset[int]
    """Indexes of the messages."""
    tokens: int
    """About as many were left out."""


class HedgeRequest(NamedTuple):
    """What a second provider gets."""

    at: ProvidedBy
    body: bytes


class EncodedPrompt(NamedTuple):
    """A prompt as a model receives it."""

    ids: list[int]
    pictures: PlacedPictures = NO_PICTURES
    dropped: DroppedTurns | None = None
    """What it leaves out of its conversation; None: nothing."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a prompt is tokenized."""

    add_special_tokens: bool | None = None
    """Whether to add the tokens that the tokenizer adds around a text. None: add them to texts, but
    not to conversations, whose template writes them."""
    truncate_tokens: int | None = None
    """Keep this many tokens of a longer prompt; -1: as many as leave space for the output. None:
    reject a prompt that is too long."""
    keep_first: bool = False
    """Keep the first tokens instead of the last."""
    drop_turns: bool = False
    """Leave out the oldest turns of a conversation that does not fit."""
    cut: TurnCut = WHOLE
    """What of a conversation is left out in any case."""
    compacts: bool = False
    """A summary of the conversation may be written, whose turns are counted for it."""


WHOLE_PROMPT = PromptOptions()
"""The whole prompt, with the special tokens of its kind."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a cut-off stream continues: after output_ids, with the seed that it had."""

    output_ids: Sequence[int]
    seed: int
    counted: bool = False
    """Whether these tokens count as this request's output: no other request is charged for them."""


class Fallback(Enum):
    """Whether another model may answer a request."""

    POLICY = ""
    """As the policy of the model says."""
    ALLOW = "allow"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A client's request, before any check."""

    model: str
    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    given: frozenset[str] = frozenset()
    """Names of the sampling parameters that the request sets; the model's defaults do not replace
    them."""
    prompt_options: PromptOptions = WHOLE_PROMPT
    strict_form: bool = True
    """Whether the whole schema of its grammar must be enforced; otherwise keywords that cannot be
    enforced are omitted."""
    tools: ToolUse | None = None
    """The tools that may be called, in a conversation; None: none."""
    n: int = 1
    resume: Resume | None = None
    execution_id: str = ""
    """Claims an execution of the tenant; empty: claims none."""
    prompt_index: int = 0
    """Index among the prompts of one body: each prompt is an execution."""
    prompt_count: int = 1
    """Number of prompts of the body."""
    take_over: bool = False
    """Whether an earlier execution with the same id ends, if there is one."""
    request_id: str = ""
    """A name, which other requests may share. Never empty for a request that runs; see
    `identify`."""
    tenant: str = ""
    priority: int = common_pb2.PRIORITY_CLASS_UNSPECIFIED
    urgent: bool = False
    """Whether a request of the class batch runs as interactive ones do, at its own price."""
    ttft_target_seconds: float = 0.0
    """The wanted time from arrival to the first token; 0: no target."""
    timeout_seconds: float = 0.0
    """The longest time that the request may take, if its API has no deadline of calls; 0: the
    default."""
    most_output: int | None = None
    """The most output tokens if the request sets no maximum; None: as many as there is space
    for."""
    adapter: str = ""
    cache_scope: int = common_pb2.CACHE_SCOPE_UNSPECIFIED
    fallback: Fallback = Fallback.POLICY
    """Whether another model may answer, if this one would let it wait for too long."""
    whole: bool = False
    """Whether a parameter is rejected that the model's provider does not take and would not get."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The client's names for fields that have another name here, for errors."""


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request that can run: everything is resolved and within limits."""

    context: common_pb2.RequestContext
    """The caller and the model; attempt is 0."""
    model: ServedModel
    prompt: Sequence[int]
    """At least one token; with max_tokens it fits into the model's context."""
    sampling: common_pb2.SamplingParams
    """The parameters as workers receive them: seed and max_tokens are set, stop strings are
    omitted."""
    stop: tuple[str, ...]
    n: int
    no_output: bool = False
    """The client wants only the prompt computed; workers still sample one token."""
    include_stop: bool = False
    """Whether the text includes the string or token that ends the output."""
    special_text: bool = False
    """Whether the text includes special tokens."""
    prompt_logprobs: int | None = None
    """Alternatives to report with each prompt token's log probability; None: report nothing."""
    reader: AnswerReader | None = None
    """Parses reasoning and calls; None: outputs are plain text."""
    output_so_far: tuple[int, ...] = ()
    """Output tokens of a cut-off stream that the client already has."""
    counts_so_far: bool = False
    """Whether these count as output of this request."""
    plainly_greedy: bool = False
    """The output depends on no random sample and on no count of earlier tokens: any worker
    continues it with the same tokens."""
    adapter_digest: bytes = b""
    """Digest of the adapter that the context names: only workers that have it serve the request."""
    pictures: PlacedPictures = NO_PICTURES
    """The prompt's pictures."""
    body: bytes = b""
    """What its provider gets; then the tokens of `prompt` are estimated, and only their number is
    meant. Empty: it runs on workers."""
    hedge: HedgeRequest | None = None
    """The same at a second provider, if the first one is late; None: at the first one alone."""
    dropped: DroppedTurns | None = None
    """What its prompt leaves out of the conversation; None: nothing."""
    urgent: bool = False
    """As of `GenerationRequest`."""
    prompt_bound: int = 0
    """The most tokens that a provider may count for its prompt."""

    requested: str = ""
    """The name that the client sent, if another model answers; empty: this one was requested."""

    @property
    def id(self) -> str:
        return self.context.request_id

    @property
    def exact_continuation(self) -> bool:
        """Whether the output continues with the same tokens on another worker.

        This holds among the workers that were available when the request was resolved.
        """
        return self.plainly_greedy or self.model.exact_continuation

    @property
    def most_tokens(self) -> int:
        """The most tokens of prompt and outputs that the request may still count."""
        output = 0 if self.no_output else self.n * self.sampling.max_tokens
        earlier = 0 if self.counts_so_far else len(self.output_so_far)
        return len(self.prompt) + output - earlier

    @property
    def named(self) -> str:
        """The name of the model for HTTP clients: the adapter's, or the model's own."""
        return self.context.adapter or self.model.name
