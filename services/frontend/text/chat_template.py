"""Chat templates: render conversations in the format that the model was trained on."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Name, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from baton.errors import BatonError, Reason
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.text.call_arguments import ArgumentsObject

_MAX_ERROR = 300
_HOLDER = "\ufdd1%d\ufdd1"
"""Placeholder for a call's arguments while the JSON around them is written: a noncharacter."""
_PROBE = "probe"
_PROBE_PARTS = ({"type": "text", "text": _PROBE},)
NO_TOKENS: Mapping[str, Any] = MappingProxyType({"bos_token": "", "eos_token": ""})
"""Special tokens of a model without names for them."""


@dataclass(frozen=True, slots=True)
class ChatToolCall:
    """A call of a tool by the assistant."""

    id: str
    name: str
    arguments: str
    """A JSON object if complete, as the model wrote it: `max_tokens` may have cut it off."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: str
    content: str
    """Its text."""
    name: str = ""
    tool_calls: Sequence[ChatToolCall] = ()
    """Calls by the assistant."""
    tool_call_id: str = ""
    """For messages of tools: the call that it answers."""
    reasoning: str = ""
    """Reasoning of the assistant."""
    parts: Sequence[str | PictureUrl] = ()
    """Text and pictures, in order, if it has pictures; `content` is the text of all of them."""

    @property
    def pictures(self) -> list[PictureUrl]:
        """Its pictures, in order."""
        return [part for part in self.parts if isinstance(part, PictureUrl)]


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """A request's options for the template, in addition to its messages."""

    add_generation_prompt: bool = True
    """Append the beginning of the assistant's next turn."""
    continue_final_message: bool = False
    """End within the last message, which the output continues."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the model, by name, such as Qwen3's `enable_thinking`; plain JSON."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Variables that the client did not set, instead of those that it did; not for providers."""
    tools: Sequence[Mapping[str, Any]] = ()
    """The tools shown to the model, in OpenAI's format; plain JSON."""


PLAIN = TemplateOptions()
"""Only a new turn of the assistant."""


class ChatTemplate:
    """A model's template, in jinja2's immutable sandbox.

    Supports the features of Hugging Face templates: `messages`, `add_generation_prompt`, special
    tokens, `raise_exception`, `strftime_now`, `tojson`, loop controls and `generation` blocks.
    """

    def __init__(
        self,
        source: str | None,
        tokens: Mapping[str, Any] = NO_TOKENS,
        tool_source: str | None = None,
    ) -> None:
        """Compile a template. If that fails, so does its first use.

        Args:
            source: for conversations; None: there is none.
            tokens: special tokens by their names in templates.
            tool_source: for conversations with tools, if it is a separate one.
        """
        self.source = source or ""
        self.tool_source = tool_source or self.source
        """Source for conversations with tools."""
        self._tokens = {**NO_TOKENS, **tokens}
        self._plain = _Compiled(source)
        self._with_tools = self._plain if tool_source is None else _Compiled(tool_source)

    @property
    def writes_tools(self) -> bool:
        """Whether it renders tools: some templates ignore them."""
        return self._with_tools.names_tools

    def render(self, messages: Sequence[ChatMessage], options: TemplateOptions = PLAIN) -> str:
        """Return the conversation as text, up to where the assistant's next words begin.

        Raises:
            BatonError: TEMPLATE_FAILED, with the template's message if it rejected the input.
        """
        compiled = self._with_tools if options.tools else self._plain
        if compiled.template is None:
            raise BatonError(Reason.TEMPLATE_FAILED, compiled.broken, field="messages")
        continues = options.continue_final_message
        given = {
            "tools": None,
            "documents": None,
            **options.variables,
            **options.hints,
            **({"tools": list(options.tools)} if options.tools else {}),
            "messages": [_as_dict(message, compiled.only_parts) for message in messages],
            "add_generation_prompt": options.add_generation_prompt and not continues,
            **self._tokens,
        }
        try:
            text = compiled.template.render(given)
        except _RefusedError as error:
            refused = f"the model's chat template rejected the messages: {_short(error)}"
            raise BatonError(Reason.TEMPLATE_FAILED, refused, field="messages") from error
        except Exception as error:  # a template may fail in any way
            refused = f"the model's chat template failed: {_short(error)}"
            raise BatonError(Reason.TEMPLATE_FAILED, refused, field="messages") from error
        return _cut_after(text, messages[-1].content) if continues else text


class _Compiled:
    """A template's source, compiled."""

    def __init__(self, source: str | None) -> None:
        self.template: jinja2.Template | None = None
        self.names_tools = False
        self.only_parts = False
        """Whether it renders lists of parts alone: Idefics 3's and SmolVLM's leave out a string."""
        self.broken = "the model has no chat template: send a text prompt"
        """Why there is no template."""
        if source is None:
            return
        environment = _environment()
        try:
            self.template = environment.from_string(source)
            # jinja2 chains maps here, and copies the chain for every rendering.
            self.template.globals = dict(self.template.globals)
            names = environment.parse(source).find_all(Name)
            self.names_tools = any(one.name == "tools" and one.ctx == "load" for one in names)
            self.only_parts = self._renders(_PROBE_PARTS) and not self._renders(_PROBE)
        except jinja2.TemplateError as error:
            self.broken = f"the model's chat template does not compile: {_short(error)}"

    def _renders(self, content: Any) -> bool:
        assert self.template is not None
        message = {"role": "user", "content": content}
        try:
            return _PROBE in self.template.render(NO_TOKENS, messages=[message])
        except Exception:  # noqa: BLE001 - a template may fail in any way
            return False


def _cut_after(text: str, final: str) -> str:
    """Return a rendered conversation up to the end of its last message.

    Raises:
        BatonError: TEMPLATE_FAILED: the template does not render that message unchanged.
    """
    at = text.rfind(final.strip())
    if at < 0:
        raise BatonError(
            Reason.TEMPLATE_FAILED,
            "continue_final_message: the model's chat template changes the last message",
            field="messages",
        )
    whole = final.lstrip()  # with its trailing spaces, unless the template strips them
    return text[: at + len(whole if text.startswith(whole, at) else final.strip())]


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it
    renders its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _as_dict(message: ChatMessage, only_parts: bool) -> dict[str, Any]:
    # `developer` is OpenAI's newer name for `system`; templates know only the older one.
    role = "system" if message.role == "developer" else message.role
    entry: dict[str, Any] = {"role": role, "content": message.content}
    parts = message.parts or ([message.content] if only_parts else ())
    if parts:
        entry["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
            for part in parts
        ]
    if message.name:
        entry["name"] = message.name
    if message.tool_calls:
        entry["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        entry["tool_call_id"] = message.tool_call_id
    if message.reasoning:
        entry["reasoning_content"] = message.reasoning
    return entry


def _call(call: ChatToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": ArgumentsObject(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which prompts are not.
    as_written: list[str] = []
    text = json.dumps(
        _held(value, as_written, laid_out=indent is not None),
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    for number, arguments in enumerate(as_written):
        text = text.replace(json.dumps(_HOLDER % number, ensure_ascii=ensure_ascii), arguments, 1)
    return text


def _held(value: Any, as_written: list[str], *, laid_out: bool) -> Any:
    """Return JSON with a placeholder for each call's arguments, whose texts are appended to
    `as_written`; in JSON that is indented, only for those that are not objects."""
    match value:
        case ArgumentsObject() if not (laid_out and value.whole):
            as_written.append(value.text)
            return _HOLDER % (len(as_written) - 1)
        case dict():
            return {name: _held(one, as_written, laid_out=laid_out) for name, one in value.items()}
        case list() | tuple():
            return [_held(one, as_written, laid_out=laid_out) for one in value]
    return value


class _RefusedError(jinja2.TemplateError):
    """The message that a template raises by `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MAX_ERROR]
