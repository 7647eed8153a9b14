"""Chat templates: conversations as the model was trained to see them."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from baton.errors import BatonError, Reason

_MAX_ERROR = 300


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the assistant."""

    id: str
    name: str
    arguments: str
    """A JSON object, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str
    name: str = ""
    tool_calls: Sequence[ToolCall] = ()
    """Of the assistant; their arguments are JSON objects."""
    tool_call_id: str = ""
    """Of a tool: the call that it answers."""
    reasoning: str = ""
    """Of the assistant: what it thought."""


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What a request asks of the template, besides its messages."""

    add_generation_prompt: bool = True
    """Write the beginning of the assistant's next turn."""
    continue_final_message: bool = False
    """End within the last message, which the output goes on with."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """The model's own, by name, such as Qwen3's `enable_thinking`; plain JSON."""
    tools: Sequence[Mapping[str, Any]] = ()
    """What the model is told that it can call, as OpenAI writes it; plain JSON."""


PLAIN = TemplateOptions()
"""Nothing but a new turn of the assistant."""


class ChatTemplate:
    """A model's template, in jinja2's immutable sandbox.

    Knows what Hugging Face templates use: `messages`, `add_generation_prompt`, `bos_token`,
    `eos_token`, `raise_exception`, `strftime_now`, `tojson`, loop controls and `generation` blocks.
    """

    def __init__(self, source: str | None, bos_token: str, eos_token: str) -> None:
        """Compile a template. One that does not compile, or is None, fails when it is used."""
        self.source = source or ""
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._template: jinja2.Template | None = None
        self._broken = "the model has no chat template; use a text prompt instead"
        if source is not None:
            try:
                self._template = _environment().from_string(source)
                # jinja2 chains maps here, and copies the chain for every rendering.
                self._template.globals = dict(self._template.globals)
            except jinja2.TemplateError as error:
                self._broken = f"the model's chat template does not compile: {_short(error)}"

    def render(self, messages: Sequence[Message], options: TemplateOptions = PLAIN) -> str:
        """Return the conversation as text, up to where the assistant's next words begin.

        Raises:
            BatonError: TEMPLATE_FAILED, with the template's own words where it refused.
        """
        if self._template is None:
            raise BatonError(Reason.TEMPLATE_FAILED, self._broken, field="messages")
        continues = options.continue_final_message
        given = {
            "tools": None,
            "documents": None,
            **options.variables,
            **({"tools": list(options.tools)} if options.tools else {}),
            "messages": [_as_dict(message) for message in messages],
            "add_generation_prompt": options.add_generation_prompt and not continues,
            **self._tokens,
        }
        try:
            text = self._template.render(given)
        except _RefusedError as error:
            refused = f"the model's chat template refuses these messages: {_short(error)}"
            raise BatonError(Reason.TEMPLATE_FAILED, refused, field="messages") from error
        except Exception as error:  # a template may fail in any way it likes
            refused = f"the model's chat template failed: {_short(error)}"
            raise BatonError(Reason.TEMPLATE_FAILED, refused, field="messages") from error
        return _cut_after(text, messages[-1].content) if continues else text


def _cut_after(text: str, final: str) -> str:
    """Return a rendered conversation up to its last message's end.

    Raises:
        BatonError: TEMPLATE_FAILED, the template does not write that message as it is.
    """
    at = text.rfind(final.strip())
    if at < 0:
        raise BatonError(
            Reason.TEMPLATE_FAILED,
            "continue_final_message: the model's chat template changes the last message",
            field="messages",
        )
    whole = final.lstrip()  # with the spaces at its end, unless the template takes them away
    return text[: at + len(whole if text.startswith(whole, at) else final.strip())]


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks the assistant's words for training; here it
    is what stands inside."""

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


class _Arguments(dict[str, Any]):
    """Arguments of a call, which templates take as an object. Where one writes them as JSON, they
    stand as the model wrote them, so that what it computed is found again."""

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text or "{}"))
        self.text = text or "{}"


def _as_dict(message: Message) -> dict[str, Any]:
    # `developer` is OpenAI's newer word for `system`; templates know only the older one.
    role = "system" if message.role == "developer" else message.role
    entry: dict[str, Any] = {"role": role, "content": message.content}
    if message.name:
        entry["name"] = message.name
    if message.tool_calls:
        entry["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id:
        entry["tool_call_id"] = message.tool_call_id
    if message.reasoning:
        entry["reasoning_content"] = message.reasoning
    return entry


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _Arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which prompts are not.
    if isinstance(value, _Arguments) and indent is None:
        return value.text
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _RefusedError(jinja2.TemplateError):
    """What a template says by `raise_exception`."""


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MAX_ERROR]
