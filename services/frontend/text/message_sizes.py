"""Approximate tokens of a conversation's messages, each counted once however often it is sent."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from threading import Lock

import msgspec

from baton.errors import BatonError
from services.frontend.text.chat_template import PLAIN, ChatMessage, TemplateOptions
from services.frontend.text.tokenizer import Tokenizer

_MOST_KNOWN = 32_768
"""Texts whose sizes are remembered: about 5 MB per model."""
_DIGEST_BYTES = 16
_CALL_TOKENS = 24
"""Around a call: its tags, keys and brackets."""
_MESSAGE_TOKENS = 8
"""Around a message, if a template does not show it."""
_WORD = "x"
_THOUGHT = "qzx"


class MessageSizes:
    """Counts tokens with a model's tokenizer. Any thread may use it.

    A message is counted by its texts, and what the template writes around one by rendering a
    conversation of a few words. Tokens of a joined text may be a few less.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()
        user, answer = ChatMessage("user", _WORD), ChatMessage("assistant", _WORD)
        one, three = self._rendered([user]), self._rendered([user, answer, user])
        word = tokenizer.count(_WORD)
        self._around = _MESSAGE_TOKENS
        if one and three > one:
            self._around = -(-(three - one - 2 * word) // 2)
        self._keeps_reasoning = self._shows_reasoning(user, answer)

    def of(self, message: ChatMessage, *, last: bool = False) -> int:
        """Return the tokens of a message; `last`: it is of the last turn, whose reasoning templates
        keep."""
        total = self._around + self._count(message.content)
        if message.reasoning and (last or self._keeps_reasoning):
            total += self._count(message.reasoning)
        for call in message.tool_calls:
            total += _CALL_TOKENS + self._count(call.name) + self._count(call.arguments)
        return total

    def fixed(self, pinned: Sequence[ChatMessage], options: TemplateOptions) -> int:
        """Return the tokens of instructions, tools and what the template writes around all."""
        key = msgspec.json.encode([[each.content for each in pinned], options.tools])
        rendered = [*pinned, ChatMessage("user", _WORD)]

        def count() -> int:
            whole = self._rendered(rendered, options)
            return max(0, whole - self._around - self._tokenizer.count(_WORD))

        return self._once(key, count)

    def _count(self, text: str) -> int:
        if not text:
            return 0
        return self._once(text.encode(), lambda: self._tokenizer.count(text))

    def _once(self, key: bytes, count: Callable[[], int]) -> int:
        digest = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        with self._lock:
            found = self._known.get(digest)
            if found is not None:
                self._known.move_to_end(digest)
                return found
        found = count()
        with self._lock:
            self._known[digest] = found
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return found

    def _rendered(self, messages: Sequence[ChatMessage], options: TemplateOptions = PLAIN) -> int:
        """Return the tokens of a conversation; 0: the template refuses it."""
        try:
            return len(self._tokenizer.encode_chat(messages, options=options))
        except BatonError:
            return 0

    def _shows_reasoning(self, user: ChatMessage, answer: ChatMessage) -> bool:
        """Return whether reasoning of earlier turns is part of a prompt."""
        thinking = ChatMessage("assistant", answer.content, reasoning=_THOUGHT)
        try:
            return _THOUGHT in self._tokenizer.template.render([user, thinking, user])
        except BatonError:
            return True
