"""Log probabilities in OpenAI's two shapes."""

from collections.abc import Sequence
from typing import Any

from baton.v1 import common_pb2
from services.frontend.text.tokenizer import Tokenizer


def chat_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], logprobs: Sequence[common_pb2.TokenLogprob]
) -> list[dict[str, Any]]:
    """`logprobs.content` of a chat completion, an entry per token."""
    return [
        {
            **_token(tokenizer, token_id, entry.logprob),
            "top_logprobs": [_token(tokenizer, top.token_id, top.logprob) for top in entry.top],
        }
        for token_id, entry in zip(token_ids, logprobs, strict=False)
    ]


class CompletionLogprobs:
    """`logprobs` of one text completion; keeps count of where tokens stand in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[common_pb2.TokenLogprob]
    ) -> dict[str, list[Any]]:
        """The entries of the next tokens."""
        tokens = [self._text(token_id) for token_id in token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [entry.logprob for entry in logprobs],
            "top_logprobs": [
                {
                    **{self._text(top.token_id): top.logprob for top in entry.top},
                    token: entry.logprob,
                }
                for token, entry in zip(tokens, logprobs, strict=False)
            ],
            "text_offset": offsets,
        }

    def _text(self, token_id: int) -> str:
        return self._tokenizer.piece(token_id).decode(errors="replace")


def _token(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    piece = tokenizer.piece(token_id)
    return {
        "token": piece.decode(errors="replace"),
        "logprob": logprob,
        "bytes": list(piece),
    }
