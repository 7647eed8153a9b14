"""Log probabilities in OpenAI's two shapes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from baton.stream_events import TokenLogprob
from services.frontend.text.tokenizer import Tokenizer


class Logprobs(ABC):
    """`logprobs` of one choice, as its tokens come."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @abstractmethod
    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> dict[str, list[Any]]:
        """Return the entries of the next tokens, by field; those of all tokens are their sum."""

    def _text(self, token_id: int) -> str:
        return self._tokenizer.piece(token_id).decode(errors="replace")


class ChatLogprobs(Logprobs):
    """Of a chat completion: `content` has an entry per token."""

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> dict[str, list[Any]]:
        return {
            "content": [
                {
                    **self._token(token_id, entry.logprob),
                    "top_logprobs": [self._token(*top) for top in entry.top],
                }
                for token_id, entry in zip(token_ids, logprobs, strict=False)
            ]
        }

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._text(token_id),
            "logprob": logprob,
            "bytes": list(self._tokenizer.piece(token_id)),
        }


class CompletionLogprobs(Logprobs):
    """Of a text completion: parallel lists; keeps count of where tokens stand in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self._offset = 0

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob]
    ) -> dict[str, list[Any]]:
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
                    **{self._text(token): logprob for token, logprob in entry.top},
                    token: entry.logprob,
                }
                for token, entry in zip(tokens, logprobs, strict=False)
            ],
            "text_offset": offsets,
        }
