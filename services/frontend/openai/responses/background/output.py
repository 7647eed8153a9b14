"""The output of a response in the background, token by token.

Workers' messages have one token or several. Events are made of single tokens, so that the same
tokens make the same events: a frontend that continues a response numbers them as the one before.
"""

import zlib
from collections.abc import Sequence

import msgspec

from baton.request.stream_events import Delta, TokenLogprob
from services.frontend.generation.state.output import ChoiceOutput
from services.frontend.requests.request import ResolvedRequest


class OutputPart(msgspec.Struct, array_like=True):
    """Tokens in a row."""

    token_ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprob] = msgspec.field(default_factory=list)
    """One per token if asked for, else none."""

    def add(self, other: "OutputPart") -> None:
        """Append tokens."""
        self.token_ids += other.token_ids
        self.logprobs += other.logprobs


def pack_output(part: OutputPart) -> bytes:
    """Return tokens, compressed."""
    return zlib.compress(msgspec.msgpack.encode(part), 1)


def unpack_output(packed: bytes) -> OutputPart:
    """Return what `pack_output` was given."""
    return msgspec.msgpack.decode(zlib.decompress(packed), type=OutputPart)


class SingleTokens:
    """Splits deltas into those of single tokens. What runs at a provider has no tokens: its deltas
    stay as they are.

    Args:
        request: whose output it is.
    """

    def __init__(self, request: ResolvedRequest) -> None:
        self._output = None if request.body else ChoiceOutput(request, 0)

    def split(self, delta: Delta) -> list[Delta]:
        """Return the deltas of a delta's tokens."""
        if self._output is None or not delta.token_ids:
            return [delta]
        return self.push(OutputPart(list(delta.token_ids), list(delta.logprobs)))

    def push(self, part: OutputPart) -> list[Delta]:
        """Return the deltas of tokens."""
        deltas: list[Delta] = []
        if self._output is None:
            assert not part.token_ids, "providers' answers have no tokens"
            return deltas
        for at, token in enumerate(part.token_ids):
            logprobs: Sequence[TokenLogprob] = part.logprobs[at : at + 1]
            deltas.append(msgspec.structs.replace(self._output.push((token,)), logprobs=logprobs))
        return deltas
