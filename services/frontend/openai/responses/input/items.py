"""The items of a response's input, as messages of a conversation."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.responses.input.item_types import KINDS, not_taken
from services.frontend.openai.responses.input.sealing import REASONING, SUMMARY, ItemSeal
from services.frontend.openai.responses.input.summaries import summary_turn
from services.frontend.openai.responses.input.tools import qualified
from services.frontend.output.custom.function import as_arguments
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.validation.prompts import MAX_CALLED
from services.frontend.text.chat_template import ChatMessage, ChatToolCall

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_NOT_SEALED = (
    "was not sealed by this cluster for this tenant, or is changed or cut off; send it as it came, "
    "or leave the item out"
)


class InputMessages(NamedTuple):
    """The messages of a prompt."""

    messages: list[ChatMessage]
    items: list[int]
    """How many items each of them is."""
    summaries: frozenset[int]
    """Indexes of those that are summaries, and of the questions before them."""


def messages_of(
    given: str | Sequence[Any] | None,
    instructions: str | None,
    max_messages: int,
    seal: ItemSeal | None = None,
    before: Sequence[Mapping[str, Any]] = (),
) -> InputMessages:
    """Return the messages that instructions, stored items before an input, and the input are.

    What the assistant thought, said and called in a row is one message, as chat templates have it.

    Args:
        given: the input.
        instructions: the body's.
        max_messages: the most items.
        seal: of the tenant's reasoning; None: no item is sealed.
        before: stored items, which the input continues.

    Raises:
        BatonError: the input is empty or has more items than `max_messages`, or one of them is
            malformed, of an unknown type, or answers no call, or is not sealed for the tenant.
    """
    reader = _Turns(seal)
    if instructions:
        reader.take(ChatMessage("system", instructions), 0)
    if not given and not before:
        raise invalid_field("input", "must be a text, or a list of at least one item")
    given = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    check_count("input", len(given) + len(before) + len(reader.messages), max_messages)
    for at, item in enumerate(before):
        reader.add(item, f"history[{at}]")
    for at, item in enumerate(given):
        reader.add(item, f"input[{at}]")
    reader.end_turn()
    return InputMessages(reader.messages, reader.items, frozenset(reader.summaries))


def check_items(given: Sequence[Any], field: str, seal: ItemSeal | None = None) -> None:
    """Check items by themselves: the call that an output answers may be elsewhere.

    Args:
        given: the items.
        field: that has them.
        seal: of the tenant; None: what is sealed is not opened.

    Raises:
        BatonError: one is malformed, of an unknown type, or not sealed for the tenant.
    """
    for at, item in enumerate(given):
        reader = _Turns(seal)
        reader.expect(item)
        reader.add(item, f"{field}[{at}]")


class _Turns:
    """Collects messages; the assistant's turn is open until something else follows."""

    def __init__(self, seal: ItemSeal | None) -> None:
        self._seal = seal
        self.messages: list[ChatMessage] = []
        self.items: list[int] = []
        """How many items each message is."""
        self.summaries: list[int] = []
        self._open_items = 0
        """Items of the assistant's turn that is open."""
        self._said: str | None = None
        self._thought = ""
        self._calls: list[ChatToolCall] = []
        self._unanswered: set[str] = set()
        self._answered: set[str] = set()

    def add(self, item: Any, where: str) -> None:
        if not isinstance(item, dict):
            raise invalid_field(where, "must be an item: an object with a type")
        match item.get("type", "message" if "role" in item else None):
            case "message":
                self._message(item, where)
            case "reasoning":
                if self._said is not None or self._calls:
                    self.end_turn()
                self._open_items += 1
                self._thought += self._opened(item, where)
            case "function_call":
                self._call(item, where, _arguments(item, where))
            case "custom_tool_call":
                self._call(item, where, _input(item, where))
            case "function_call_output" | "custom_tool_call_output":
                self._output(item, where)
            case "compaction":
                self.end_turn()
                asked, summary = summary_turn(self._summary(item, where))
                self.summaries += (len(self.messages), len(self.messages) + 1)
                self.take(asked, 0)
                self.take(summary, 1)
            case str() as kind:
                raise not_taken(f"{where}.type", kind)
            case _:
                raise invalid_field(f"{where}.type", f"must be {KINDS}")

    def take(self, message: ChatMessage, items: int) -> None:
        """Add a message that is so many items."""
        self.messages.append(message)
        self.items.append(items)

    def expect(self, item: Any) -> None:
        """Take the call that an item answers as known."""
        call_id = item.get("call_id") if isinstance(item, dict) else None
        if isinstance(call_id, str):
            self._unanswered.add(call_id)

    def end_turn(self) -> None:
        """End the assistant's turn, if one is open."""
        if self._said is not None or self._thought or self._calls:
            message = ChatMessage(
                "assistant", self._said or "", tool_calls=self._calls, reasoning=self._thought
            )
            self.take(message, self._open_items)
        self._said, self._thought, self._calls, self._open_items = None, "", [], 0

    def _message(self, item: dict[str, Any], where: str) -> None:
        role = item.get("role")
        if role not in _ROLES:
            raise invalid_field(f"{where}.role", f"must be {', '.join(_ROLES)}")
        text, parts = _content(item.get("content"), f"{where}.content")
        if role != "assistant":
            self.end_turn()
            self.take(ChatMessage(role, text, parts=parts), 1)
            return
        if parts:
            raise unsupported(f"{where}.content", why="only messages of users can have pictures")
        if self._said is not None or self._calls:
            self.end_turn()
        self._open_items += 1
        self._said = text

    def _opened(self, item: dict[str, Any], where: str) -> str:
        """Return what an item of reasoning says: what is sealed in it, if it is sealed."""
        sealed = item.get("encrypted_content")
        if sealed is None or self._seal is None:
            return _thought(item, where)
        return self._unsealed(sealed, REASONING, where)

    def _summary(self, item: dict[str, Any], where: str) -> str:
        """Return what an item of compaction says; empty: no seal is known, and nothing is read."""
        sealed = item.get("encrypted_content")
        if not isinstance(sealed, str):
            raise invalid_field(f"{where}.encrypted_content", "must be the text that it came with")
        return "" if self._seal is None else self._unsealed(sealed, SUMMARY, where)

    def _unsealed(self, sealed: Any, purpose: str, where: str) -> str:
        assert self._seal is not None, "a request with sealed items has a seal"
        opened = self._seal.open(sealed, purpose) if isinstance(sealed, str) else None
        if opened is None:
            raise invalid_field(f"{where}.encrypted_content", _NOT_SEALED)
        return opened

    def _call(self, item: dict[str, Any], where: str, arguments: str) -> None:
        name, call_id, namespace = item.get("name"), item.get("call_id"), item.get("namespace")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_CALLED:
            raise invalid_field(f"{where}.name", f"must have 1 to {MAX_CALLED} characters")
        if namespace is not None and not isinstance(namespace, str):
            raise invalid_field(f"{where}.namespace", "must be a text")
        if not isinstance(call_id, str) or not call_id:
            raise invalid_field(f"{where}.call_id", "must be the id of the call")
        self._unanswered.add(call_id)
        self._open_items += 1
        self._calls.append(ChatToolCall(call_id, qualified(namespace, name), arguments))

    def _output(self, item: dict[str, Any], where: str) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or not call_id:
            raise invalid_field(f"{where}.call_id", "must be the id of a call")
        if call_id not in self._unanswered:
            said = "answers a call that is answered already"
            if call_id not in self._answered:
                said = "no call before it has this call_id"
            raise invalid_field(f"{where}.call_id", said)
        self._unanswered.discard(call_id)
        self._answered.add(call_id)
        text, parts = _content(item.get("output"), f"{where}.output")
        if parts:
            raise unsupported(f"{where}.output", why="only messages of users can have pictures")
        self.end_turn()
        self.take(ChatMessage("tool", text, tool_call_id=call_id), 1)


def _arguments(item: dict[str, Any], where: str) -> str:
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        raise invalid_field(f"{where}.arguments", "must be JSON as a text")
    return arguments


def _input(item: dict[str, Any], where: str) -> str:
    """Return the input of a custom tool, as the arguments that the model wrote."""
    given = item.get("input")
    if not isinstance(given, str):
        raise invalid_field(f"{where}.input", "must be a text")
    return as_arguments(given)


def _content(content: Any, where: str) -> tuple[str, Sequence[str | PictureUrl]]:
    """Return a content's text, and its parts, if there are pictures among them."""
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise invalid_field(where, "must be a text, or a list of parts")
    texts: list[str] = []
    parts: list[str | PictureUrl] = []
    for at, part in enumerate(content):
        field = f"{where}[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXT_PARTS or kind == "refusal":
            text = part.get("refusal" if kind == "refusal" else "text")
            if not isinstance(text, str):
                raise invalid_field(f"{field}.text", "must be a text")
            texts.append(text)
            parts.append(text)
        elif kind == "input_image":
            parts.append(_picture(part, field))
        else:
            shown = kind[:64] if isinstance(kind, str) else kind
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{field}.type: {shown!r} is not supported; only text and input_image are",
                field=f"{field}.type",
            )
    return "".join(texts), parts if len(parts) > len(texts) else ()


def _picture(part: dict[str, Any], field: str) -> PictureUrl:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise unsupported(f"{field}.file_id", why="no files are stored; send a data URL")
    if part.get("detail") not in (None, "auto"):
        raise unsupported(f"{field}.detail", why="how a model sees a picture is fixed; omit it")
    return PictureUrl(url, f"{field}.image_url")


def _thought(item: dict[str, Any], where: str) -> str:
    """Return the text of an item of reasoning; a summary is none."""
    content = item.get("content")
    if content is None:
        return ""
    if not isinstance(content, list):
        raise invalid_field(f"{where}.content", "must be a list of parts")
    texts = []
    for at, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise invalid_field(f"{where}.content[{at}].text", "must be a text")
        texts.append(text)
    return "".join(texts)
