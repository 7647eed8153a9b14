"""The items of a response's output, from the parts of an answer.

One list makes the events of a stream and the whole response: ids, order and contents are the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Any
from uuid import UUID

from baton.conversations.ids import nth, text_of
from baton.request.stream_events import (
    CallArguments,
    CallBegun,
    CallEnded,
    Part,
    Reasoning,
    Text,
)
from services.frontend.openai.responses.input.sealing import ItemSeal
from services.frontend.output.custom.reader import InputReader

ItemEvent = tuple[str, dict[str, Any]]
"""The type of an event, and its fields besides the type and its number."""

IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"
CANCELLED = "cancelled"


class OutputItem(ABC):
    """An item that grows.

    Args:
        at: its index in the output.
        item_id: its id.
    """

    def __init__(self, at: int, item_id: str) -> None:
        self.at = at
        self.id = item_id
        self.texts: list[str] = []
        self.status = IN_PROGRESS

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return it as it is so far."""

    @abstractmethod
    def added(self) -> list[ItemEvent]:
        """Return the events of an empty item."""

    @abstractmethod
    def grown(self, text: str, logprobs: Sequence[Any] = ()) -> ItemEvent:
        """Add a text, and return the event of it."""

    @abstractmethod
    def ended(self) -> list[ItemEvent]:
        """Return the events of what is whole, before that of the item."""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def end(self, status: str) -> list[ItemEvent]:
        """End it, and return its last events."""
        self.status = status
        return [*self.ended(), ("response.output_item.done", self._at(item=self.body()))]

    def _added(self) -> ItemEvent:
        return "response.output_item.added", self._at(item=self.body())

    def _at(self, **fields: Any) -> dict[str, Any]:
        return {"output_index": self.at, **fields}

    def _in(self, **fields: Any) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.at, **fields}


class MessageItem(OutputItem):
    """What the assistant says: one part of text."""

    def __init__(self, at: int, item_id: str) -> None:
        super().__init__(at, item_id)
        self.logprobs: list[Any] = []

    def body(self) -> dict[str, Any]:
        content = [self._part()] if self.texts or self.status != IN_PROGRESS else []
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": self.status,
            "content": content,
        }

    def added(self) -> list[ItemEvent]:
        part = ("response.content_part.added", self._in(content_index=0, part=self._part()))
        return [self._added(), part]

    def grown(self, text: str, logprobs: Sequence[Any] = ()) -> ItemEvent:
        self.texts.append(text)
        self.logprobs += logprobs
        told = self._in(content_index=0, delta=text, logprobs=list(map(_without_bytes, logprobs)))
        return "response.output_text.delta", told

    def ended(self) -> list[ItemEvent]:
        logprobs = list(map(_without_bytes, self.logprobs))
        done = self._in(content_index=0, text=self.text, logprobs=logprobs)
        part = self._in(content_index=0, part=self._part())
        return [("response.output_text.done", done), ("response.content_part.done", part)]

    def _part(self) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": self.logprobs,
        }


class ReasoningItem(OutputItem):
    """What the model thinks: one part of text."""

    seal: ItemSeal | None = None
    """With which it is also returned sealed; None: it is not."""
    _sealed: str | None = None

    def body(self) -> dict[str, Any]:
        content = [self._part()] if self.texts else []
        body: dict[str, Any] = {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": [],
            "content": content,
        }
        if self.seal is not None:
            if self._sealed is None and self.status != IN_PROGRESS:
                self._sealed = self.seal.close(self.text)
            body["encrypted_content"] = self._sealed
        return body

    def added(self) -> list[ItemEvent]:
        part = ("response.content_part.added", self._in(content_index=0, part=self._part()))
        return [self._added(), part]

    def grown(self, text: str, logprobs: Sequence[Any] = ()) -> ItemEvent:  # noqa: ARG002 - text has them
        self.texts.append(text)
        return "response.reasoning_text.delta", self._in(content_index=0, delta=text)

    def ended(self) -> list[ItemEvent]:
        done = self._in(content_index=0, text=self.text)
        part = self._in(content_index=0, part=self._part())
        return [("response.reasoning_text.done", done), ("response.content_part.done", part)]

    def _part(self) -> dict[str, Any]:
        return {"type": "reasoning_text", "text": self.text}


class CallItem(OutputItem):
    """A call of a function.

    Args:
        at: its index in the output.
        item_id: of the item.
        call_id: of the call.
        name: of the function.
        namespace: of the function; empty: none.
    """

    def __init__(self, at: int, item_id: str, call_id: str, name: str, namespace: str) -> None:
        super().__init__(at, item_id)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace

    def body(self) -> dict[str, Any]:
        body = {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self.text,
        }
        if self._namespace:
            body["namespace"] = self._namespace
        return body

    def added(self) -> list[ItemEvent]:
        return [self._added()]

    def arguments(self, text: str) -> list[ItemEvent]:
        """Add arguments, and return the events of it."""
        return [self.grown(text)]

    def grown(self, text: str, logprobs: Sequence[Any] = ()) -> ItemEvent:  # noqa: ARG002 - text has them
        self.texts.append(text)
        return "response.function_call_arguments.delta", self._in(delta=text)

    def ended(self) -> list[ItemEvent]:
        done = self._in(name=self._name, arguments=self.text)
        return [("response.function_call_arguments.done", done)]


class CustomCallItem(CallItem):
    """A call of a custom tool; the arguments are as of `CallItem`."""

    def __init__(self, at: int, item_id: str, call_id: str, name: str, namespace: str) -> None:
        super().__init__(at, item_id, call_id, name, namespace)
        self._reader = InputReader()

    def body(self) -> dict[str, Any]:
        body = super().body()
        body["input"] = body.pop("arguments")
        return body | {"type": "custom_tool_call"}

    def arguments(self, text: str) -> list[ItemEvent]:
        read = self._reader.push(text)
        return [self.grown(read)] if read else []

    def grown(self, text: str, logprobs: Sequence[Any] = ()) -> ItemEvent:  # noqa: ARG002 - text has them
        self.texts.append(text)
        return "response.custom_tool_call_input.delta", self._in(delta=text)

    def ended(self) -> list[ItemEvent]:
        rest = self._reader.end()
        events = [self.grown(rest)] if rest else []
        return [*events, ("response.custom_tool_call_input.done", self._in(input=self.text))]


class OutputItems:
    """The items of one output, in order.

    Args:
        first: the id of the first item; those of the others follow it.
        names: namespace and name of tools in namespaces, by their names for the model.
        custom: names of custom tools for the model.
        seal: with which reasoning is returned sealed; None: it is not.
    """

    def __init__(
        self,
        first: UUID,
        names: Mapping[str, tuple[str, str]],
        custom: Set[str] = frozenset(),
        seal: ItemSeal | None = None,
    ) -> None:
        self._first = first
        self._names = names
        self._custom = custom
        self._seal = seal
        self._items: list[OutputItem] = []
        self.open: OutputItem | None = None
        """The item that grows."""

    def body(self) -> list[dict[str, Any]]:
        """Return all items as they are so far."""
        return [item.body() for item in self._items]

    def take(self, parts: Sequence[Part], logprobs: Sequence[Any] = ()) -> list[ItemEvent]:
        """Add parts, and return the events of what changed.

        Args:
            parts: the next ones of the answer.
            logprobs: of their tokens, for the first text among them.
        """
        events: list[ItemEvent] = []
        for part in parts:
            match part:
                case Text():
                    events += self._grow(MessageItem, "msg", part.text, logprobs)
                    logprobs = ()
                case Reasoning():
                    events += self._grow(ReasoningItem, "rs", part.text)
                case CallBegun():
                    events += self._end(COMPLETED)
                    namespace, name = self._names.get(part.name, ("", part.name))
                    custom = part.name in self._custom
                    at, item_id = self._next("ctc" if custom else "fc")
                    kind = CustomCallItem if custom else CallItem
                    events += self._begin(kind(at, item_id, part.id, name, namespace))
                case CallArguments():
                    assert isinstance(self.open, CallItem), "a call begins before its arguments"
                    events += self.open.arguments(part.text)
                case CallEnded():
                    events += self._end(COMPLETED)
        return events

    def end(self, status: str) -> list[ItemEvent]:
        """End the last item, and return the events of that.

        Args:
            status: of an item that is open; `incomplete`: something cut it off.
        """
        if not self._items and status == COMPLETED:  # an answer is a message, if an empty one
            at, item_id = self._next("msg")
            return [*self._begin(MessageItem(at, item_id)), *self._end(status)]
        return self._end(status)

    def _grow(
        self,
        kind: type[MessageItem] | type[ReasoningItem],
        prefix: str,
        text: str,
        logprobs: Sequence[Any] = (),
    ) -> list[ItemEvent]:
        events: list[ItemEvent] = []
        if type(self.open) is not kind:
            ended, item = self._end(COMPLETED), kind(*self._next(prefix))
            if isinstance(item, ReasoningItem):
                item.seal = self._seal
            events = [*ended, *self._begin(item)]
        assert self.open is not None
        return [*events, self.open.grown(text, logprobs)]

    def _next(self, prefix: str) -> tuple[int, str]:
        at = len(self._items)
        return at, text_of(prefix, nth(self._first, at))

    def _begin(self, item: OutputItem) -> list[ItemEvent]:
        self._items.append(item)
        self.open = item
        return item.added()

    def _end(self, status: str) -> list[ItemEvent]:
        item, self.open = self.open, None
        return [] if item is None else item.end(status)


def _without_bytes(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a token's log probability as events have it."""
    top = [{"token": one["token"], "logprob": one["logprob"]} for one in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": top}
