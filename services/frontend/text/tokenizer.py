"""A model's tokenizer: token ids from text and messages, text from token ids.

Reads the files of Hugging Face checkpoints: tokenizer.json, and from tokenizer_config.json the chat
templates (or chat_template.jinja next to it) and the names of the special tokens.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import tokenizers

from baton.errors import BatonError, Reason, invalid_field
from baton.worker.wire.tokenizer_files import TokenizerFiles
from services.frontend.text.call_arguments import read_arguments
from services.frontend.text.chat_template import (
    PLAIN,
    ChatMessage,
    ChatTemplate,
    ChatToolCall,
    TemplateOptions,
)
from services.frontend.text.detokenizer import (
    ByteDetokenizer,
    Detokenizer,
    TokenBytes,
    WindowDetokenizer,
)
from services.frontend.text.infill import infill_tokens
from services.frontend.text.special_tokens import SpecialTokenInTextError, SpecialTokens
from services.frontend.text.tokenizer_config import read_config, special_tokens, templates

if TYPE_CHECKING:
    from baton.structured.grammars import Grammars

T = TypeVar("T")

LONG_CHARACTERS = 8192
"""Longer texts are tokenized on another thread, so that they do not delay streams."""
_PREFIX_TOKENS = 6
_DENSE_CHARACTERS = 4
"""Texts with more characters than this per allowed token are first counted in pieces."""


_ANY = 2**31
"""A bound above the tokens of any text."""


NOTHING_NAMED: Mapping[str, str | None] = MappingProxyType(
    dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"))
)
"""The names of special tokens for a tokenizer whose configuration has none."""


class TooManyTokensError(Exception):
    """A text has more tokens than allowed."""


class Tokenizer:
    """The tokenizer and chat template of one model. Used on the event loop's thread, except that
    `encode` and `encode_chat` may run on other threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        template: ChatTemplate,
        named: Mapping[str, str | None] = NOTHING_NAMED,
    ) -> None:
        """Use a tokenizer of the library.

        Args:
            backend: must not change afterwards.
            template: of conversations.
            named: texts of special tokens by the names of their roles, as returned by `info`.
        """
        self._backend = backend
        self._template = template
        self._named = named
        self._special_tokens = SpecialTokens(backend)
        self._special = self._special_tokens.ids
        self._pieces: dict[int, bytes] = {}
        self._byte_level = _is_byte_level(backend.decoder)
        self._token_bytes = TokenBytes(self._text_bytes)
        self._all_bytes = TokenBytes(self.piece)
        self._infill = infill_tokens(backend.token_to_id)
        self._longest = max(map(len, backend.get_vocab()), default=1)
        """Most characters of a token ..."""
        self._spelled = self._byte_level or getattr(backend.model, "byte_fallback", False)
        """... if no token stands for an unlimited number of unknown characters."""
        self.grammars: Grammars | None = None
        """Compiles grammars; None until `load_grammars`."""
        self._grammars_lock = Lock()
        """Held while they are loaded, so that concurrent callers wait for the same ones."""
        self._no_grammars = ""
        """Why there are none, once `load_grammars` has failed."""

    def load_grammars(self) -> "Grammars":
        """Read the vocabulary for grammars; takes a second, once, on any thread.

        Raises:
            ValueError: grammars are not supported with this tokenizer.
        """
        # Imports numpy: a frontend without requests for grammars does not need it.
        from baton.structured.grammars import Grammars
        from baton.structured.vocabulary import Vocabulary

        with self._grammars_lock:
            if self._no_grammars:
                raise ValueError(self._no_grammars)
            if self.grammars is None:
                try:
                    self.grammars = Grammars(Vocabulary.load(self._backend.to_str().encode()))
                except ValueError as error:
                    self._no_grammars = str(error)
                    raise
            return self.grammars

    @property
    def template(self) -> ChatTemplate:
        """The chat template."""
        return self._template

    @property
    def tags(self) -> Mapping[str, int]:
        """Special tokens, and tokens written as tags, by their text."""
        return self._special_tokens.tags

    def is_special(self, token_id: int) -> bool:
        """Return whether a token is special, and has no text in an output."""
        return token_id in self._special

    @classmethod
    def load(cls, files: TokenizerFiles) -> "Tokenizer":
        """Read a checkpoint's tokenizer. Blocks, and holds the interpreter's lock: see ADR 15.

        Raises:
            ValueError: a file is invalid; the message names it.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(files.tokenizer.decode())
        except Exception as error:  # the library raises bare Exception
            raise ValueError(f"tokenizer.json is not a tokenizer: {error}") from error
        backend.no_truncation()
        backend.no_padding()
        config = read_config(files.config)
        tokens = special_tokens(config)
        source, tool_source = templates(files.chat_template, config)
        named = {name: tokens.get(name) or None for name in NOTHING_NAMED}
        return cls(backend, ChatTemplate(source, tokens, tool_source), named)

    @property
    def info(self) -> dict[str, str | None]:
        """The texts of the tokens at the ends of texts and for padding, by their names in
        tokenizer_config.json."""
        return {"tokenizer_class": "Tokenizer", **self._named}

    def encode(
        self, text: str, most: int = _ANY, *, special: bool = True, around: bool = True
    ) -> list[int]:
        """Return the ids of a text prompt.

        Args:
            text: the prompt.
            most: allowed tokens.
            special: whether special tokens' texts in it become special tokens.
            around: whether to add the special tokens that the tokenizer adds itself.

        Raises:
            BatonError: a special token in it cannot be distinguished from text.
            TooManyTokensError: there are more than `most`.
        """
        self._refuse_long(text, most)
        if special:
            return self._encode(text, most, add_special_tokens=around)
        encode = partial(self._special_tokens.encode_prompt, around=around)
        return self._encode_marked(encode, text, most, "prompt")

    def encode_infill(
        self, before: str, behind: str, most: int = _ANY, *, special: bool = True
    ) -> list[int]:
        """Return the ids of a prompt for the text between two texts; otherwise as `encode`.

        Raises:
            BatonError: UNSUPPORTED_PARAMETER: the model has no tokens for it; or as for `encode`.
            TooManyTokensError: there are more than `most`.
        """
        if self._infill is None:
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                "suffix: the model does not support fill in the middle; omit it",
                field="suffix",
            )
        parts = [
            self.encode(text, most, special=special, around=False) if text else []
            for text in (before, behind)
        ]
        to_before, to_behind, to_output = self._infill
        start = self._special_tokens.encode("", around=True)
        ids = [*start, to_before, *parts[0], to_behind, *parts[1], to_output]
        if len(ids) > most:
            raise TooManyTokensError
        return ids

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        most: int = _ANY,
        *,
        special: bool = False,
        around: bool = False,
        options: TemplateOptions = PLAIN,
    ) -> list[int]:
        """Return the ids of a conversation; only the template writes special tokens.

        Args:
            messages: the conversation.
            most: allowed tokens.
            special: whether special tokens' texts in messages become special tokens, too.
            around: whether to add those that the tokenizer adds at the ends of a text.
            options: of the template.

        Raises:
            BatonError: the template failed, or a special token in a message cannot be
                distinguished from text.
            TooManyTokensError: there are more than `most`.
        """
        if not special:
            messages = self._mark(messages)
            if options.variables:
                options = replace(options, variables=self._mark_values(options.variables))
            if options.tools:
                options = replace(options, tools=self._mark_values(list(options.tools)))
        text = self._template.render(messages, options)
        if special or not self._special_tokens.is_marked(text):
            self._refuse_long(text, most)
            return self._encode(text, most, add_special_tokens=around)
        self._refuse_long(self._special_tokens.unmark(text), most)
        encode = partial(self._special_tokens.encode, around=around)
        return self._encode_marked(encode, text, most, "messages")

    def count(self, text: str) -> int:
        """Return the number of tokens of a text alone."""
        return len(self._encode(text, _ANY, add_special_tokens=False))

    def word_runs(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the token runs of words, at a text's beginning and after a space."""
        runs: dict[tuple[int, ...], None] = {}
        for word in words:
            for text in (word, " " + word.lstrip()):
                runs[tuple(self._encode(text, _ANY, add_special_tokens=False))] = None
        return tuple(run for run in runs if run)

    def _mark(self, messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        mark = self._special_tokens.mark
        return [
            replace(
                message,
                content=mark(message.content),
                parts=[mark(part) if isinstance(part, str) else part for part in message.parts],
                name=mark(message.name),
                reasoning=mark(message.reasoning),
                tool_call_id=mark(message.tool_call_id),
                tool_calls=[self._mark_call(call) for call in message.tool_calls],
            )
            if message.name
            or message.tool_calls
            or message.tool_call_id
            or message.reasoning
            or message.parts
            else message
            if (content := mark(message.content)) is message.content
            else replace(message, content=content)
            for message in messages
        ]

    def _mark_call(self, call: ChatToolCall) -> ChatToolCall:
        """Mark a call's arguments as they are written, unless an escape hides a special token."""
        text = self._special_tokens.mark(call.arguments)
        values = self._mark_values(read_arguments(call.arguments))
        if read_arguments(text) != values:
            text = json.dumps(values, ensure_ascii=False)
        mark = self._special_tokens.mark
        return replace(call, id=mark(call.id), name=mark(call.name), arguments=text)

    def _mark_values(self, value: Any) -> Any:
        """Return JSON whose texts, and names, are marked like messages."""
        mark = self._special_tokens.mark
        match value:
            case str():
                return mark(value)
            case list():
                return [self._mark_values(one) for one in value]
            case dict():
                return {mark(name): self._mark_values(one) for name, one in value.items()}
        return value

    def _encode(self, text: str, most: int, *, add_special_tokens: bool) -> list[int]:
        # The library can leave out the tokens' offsets only for batches; one text is a fifth
        # cheaper this way, and several texts together are no cheaper than one by one.
        (found,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        if len(found) > most:
            raise TooManyTokensError
        return found.ids

    def _encode_marked(
        self, encode: Callable[[str], list[int]], text: str, most: int, field: str
    ) -> list[int]:
        try:
            ids = encode(text)
        except SpecialTokenInTextError:
            raise invalid_field(
                field, "the text contains a special token of the model; remove it"
            ) from None
        if len(ids) > most:
            raise TooManyTokensError
        return ids

    def _refuse_long(self, text: str, most: int) -> None:
        """Reject a text that is far too long without tokenizing all of it: that takes a second and
        some hundred bytes of memory per token, and the interpreter's lock while it is freed."""
        if self._spelled and len(text) > most * self._longest:
            raise TooManyTokensError
        piece = most * _DENSE_CHARACTERS if text.isascii() else most
        if len(text) <= piece:
            return
        count = 0
        for at in range(0, len(text), piece):
            (found,) = self._backend.encode_batch_fast(
                [text[at : at + piece]], add_special_tokens=False
            )
            count += len(found) - self._longest  # tokens that the cut may have added
            if count > most:
                raise TooManyTokensError

    def decode(self, token_ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text of ids; special tokens only have text on request."""
        return self._backend.decode(list(token_ids), skip_special_tokens=not special)

    def piece(self, token_id: int) -> bytes:
        """Return the bytes of a token, special tokens included; empty for unknown ids."""
        piece = self._pieces.get(token_id)
        if piece is None:
            token = self._backend.id_to_token(token_id)
            if token is None:
                piece = b""
            elif self._byte_level:
                piece = _token_bytes(token)
            else:
                piece = self._backend.decode([token_id], skip_special_tokens=False).encode()
            self._pieces[token_id] = piece
        return piece

    def token_texts(self, token_ids: Sequence[int]) -> list[str]:
        """Return the text of each token, including special ones; invalid UTF-8 becomes U+FFFD."""
        return [self.piece(token_id).decode(errors="replace") for token_id in token_ids]

    def offsets(self, text: str, token_ids: Sequence[int]) -> list[int]:
        """Return where in a prompt's text each of its tokens begins, in characters.

        A token without text, such as one that begins every prompt, begins where the next one does.
        The tokens of a truncated prompt are those of one end of the text.

        Args:
            text: the prompt.
            token_ids: its tokens.
        """
        ids = list(token_ids)
        for around in (True, False):
            (found,) = self._backend.encode_batch([text], add_special_tokens=around)
            for at in {0, max(0, len(found.ids) - len(ids))}:
                if found.ids[at : at + len(ids)] == ids:
                    return _begins(found.offsets[at : at + len(ids)], len(text))
        return self._aligned(text, ids)

    def _aligned(self, text: str, token_ids: Sequence[int]) -> list[int]:
        """Return the same for tokens that do not follow from the text alone."""
        begins, at = [], 0
        detokenizer = self.detokenizer(special=True)
        for token_id in token_ids:
            begins.append(min(at + detokenizer.held, len(text)))
            piece = detokenizer.push(token_id)
            if token_id not in self._special or text.startswith(piece, at):
                at += len(piece)
        return begins

    def detokenizer(self, prompt: Sequence[int] = (), *, special: bool = False) -> Detokenizer:
        """Return a detokenizer for one output that continues `prompt`.

        Args:
            prompt: the preceding tokens.
            special: whether special tokens have text.
        """
        if self._byte_level:
            return ByteDetokenizer(self._all_bytes if special else self._token_bytes)
        before = prompt[-_PREFIX_TOKENS:]
        if not special:
            return WindowDetokenizer(self.decode, self._has_text, self._is_byte, before)
        decode = partial(self.decode, special=True)
        return WindowDetokenizer(decode, self._is_token, self._is_byte, before)

    def _text_bytes(self, token_id: int) -> bytes:
        return b"" if token_id in self._special else self.piece(token_id)

    def _has_text(self, token_id: int) -> bool:
        return token_id not in self._special and self._backend.id_to_token(token_id) is not None

    def _is_token(self, token_id: int) -> bool:
        return self._backend.id_to_token(token_id) is not None

    def _is_byte(self, token_id: int) -> bool:
        token = self._backend.id_to_token(token_id)
        return token is not None and len(token) == 6 and token.startswith("<0x")


class TokenizerThreads:
    """Runs long tokenizations off the loop; rejects them when too many wait already."""

    def __init__(self, max_queued: int) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tokenize")
        self._max_queued = max_queued
        self._queued = 0

    async def run(self, work: Callable[[], T], characters: int) -> T:
        """Return `work()`, run on another thread if it processes many characters.

        Raises:
            BatonError: OVERLOADED: too many wait already.
        """
        if characters <= LONG_CHARACTERS:
            return work()
        if self._queued >= self._max_queued:
            raise BatonError(
                Reason.OVERLOADED,
                "too many long prompts are being tokenized; retry later",
                retry_after=1.0,
            )
        self._queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._queued -= 1

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


def _begins(spans: Sequence[tuple[int, int]], end: int) -> list[int]:
    """Return where tokens begin; those without a span, where the next one does."""
    begins = []
    for begin, behind in reversed(spans):
        if begin < behind:
            end = begin
        begins.append(end)
    return begins[::-1]


def _is_byte_level(decoder: Any) -> bool:
    return isinstance(decoder, tokenizers.decoders.ByteLevel)


def _byte_alphabet() -> dict[str, int]:
    """Return the character for each byte in byte-level vocabularies (GPT-2's table):
    printable Latin-1 for itself, the others from U+0100 on in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet, shifted = {}, 0x100
    for byte in range(0x100):
        if byte in printable:
            alphabet[chr(byte)] = byte
        else:
            alphabet[chr(shifted)] = byte
            shifted += 1
    return alphabet


_ALPHABET = _byte_alphabet()


def _token_bytes(token: str) -> bytes:
    try:
        return bytes([_ALPHABET[character] for character in token])
    except KeyError:
        return token.encode()  # an added token, stored as its text
