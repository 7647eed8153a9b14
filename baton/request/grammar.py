"""What the text of an output must look like. What it allows is decided in `baton.structured`."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

import msgspec

from baton.v1 import common_pb2

KINDS = ("json_schema", "regex", "choice", "lark")
"""As the fields of `baton.v1.Grammar` are called."""
MAX_GRAMMAR_BYTES = 256 * 1024
"""Of a grammar's text in UTF-8."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Grammar:
    """A form that an output's text must have, as of `baton.v1.Grammar`."""

    kind: str
    """One of KINDS; empty: the message named none."""
    text: str
    """The schema as JSON, the regular expression, the grammar; of choices, a JSON array of them."""
    digest: bytes
    """Of both; `check` refuses another one."""

    @classmethod
    def of(cls, kind: str, text: str) -> Self:
        """Make a grammar of its text."""
        return cls(kind, text, _digest(kind, text))

    @classmethod
    def of_choices(cls, options: Sequence[str]) -> Self:
        """Make a grammar that the texts alone have."""
        return cls.of("choice", msgspec.json.encode(list(options)).decode())

    @classmethod
    def from_proto(cls, message: common_pb2.Grammar) -> Self:
        """Make the grammar of a message. Nothing is checked."""
        kind = message.WhichOneof("form") or ""
        if kind == "choice":
            text = msgspec.json.encode(list(message.choice.options)).decode()
        else:
            text = getattr(message, kind) if kind else ""
        return cls(kind, text, message.digest or _digest(kind, text))

    def to_proto(self) -> common_pb2.Grammar:
        """Make the message."""
        message = common_pb2.Grammar(digest=self.digest)
        if self.kind == "choice":
            message.choice.options.extend(self.options())
        elif self.kind:
            setattr(message, self.kind, self.text)
        return message

    def options(self) -> list[str]:
        """Return the texts of a grammar of choices."""
        return msgspec.json.decode(self.text, type=list[str])

    def check(self) -> None:
        """Check everything but whether it can be compiled.

        Raises:
            ValueError: it names no form, is too long, has nothing to choose from, or its digest is
                not that of its text.
        """
        if self.kind not in KINDS:
            raise ValueError(f"must be one of {', '.join(KINDS)}")
        size = len(self.text.encode())
        if size > MAX_GRAMMAR_BYTES:
            raise ValueError(f"{self.kind} has {size} bytes: the limit is {MAX_GRAMMAR_BYTES}")
        if not self.text:
            raise ValueError(f"{self.kind} is empty")
        if self.kind == "choice" and not all(self.options() or [""]):
            raise ValueError("choice must have at least one text, and no empty text")
        if self.digest != _digest(self.kind, self.text):
            raise ValueError("digest does not match the text; omit it")


def _digest(kind: str, text: str) -> bytes:
    return sha256(kind.encode() + b"\0" + text.encode()).digest()[:_DIGEST_BYTES]
