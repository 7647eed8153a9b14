"""Log probabilities in OpenAI's two shapes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from baton.request.stream_events import TokenLogprob
from services.frontend.text.tokenizer import Tokenizer


class Logprobs(ABC):
    """`logprobs` of one choice, as its tokens come."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        """Write tokens as texts, or as ids in the shape `token_id:N`."""
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    @abstractmethod
    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]
    ) -> dict[str, list[Any]]:
        """Return the entries of the next tokens, by field; those of all tokens are their sum."""

    def _text(self, token_id: int) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.piece(token_id).decode(errors="replace")


class ChatLogprobs(Logprobs):
    """Of a chat completion: `content` has an entry per token."""

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]
    ) -> dict[str, list[Any]]:
        return {
            "content": [
                {
                    **self._token(token_id, entry.logprob),
                    "top_logprobs": [self._token(*top) for top in entry.top],
                }
                for token_id, entry in zip(token_ids, logprobs, strict=False)
                if entry is not None
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

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        super().__init__(tokenizer, as_ids=as_ids)
        self._offset = 0

    def take(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]
    ) -> dict[str, list[Any]]:
        tokens = [self._text(token_id) for token_id in token_ids]
        offsets = []
        for token_id, token in zip(token_ids, tokens, strict=True):
            offsets.append(self._offset)
            text = self._tokenizer.piece(token_id).decode(errors="replace")
            self._offset += len(text if self._as_ids else token)
        return {
            "tokens": tokens,
            "token_logprobs": [None if entry is None else entry.logprob for entry in logprobs],
            "top_logprobs": [
                None
                if entry is None
                else {
                    **{self._text(token): logprob for token, logprob in entry.top},
                    token: entry.logprob,
                }
                for token, entry in zip(tokens, logprobs, strict=False)
            ],
            "text_offset": offsets,
        }


def prompt_logprobs(
    prompt: Sequence[int], entries: Sequence[TokenLogprob], tokenizer: Tokenizer
) -> list[dict[str, Any] | None]:
    """Return vLLM's `prompt_logprobs`: of each token, itself and the likeliest, by id.

    Args:
        prompt: its token ids.
        entries: one of each but the first, before which there is nothing.
        tokenizer: of the model.
    """

    def told(token_id: int, logprob: float, rank: int | None) -> dict[str, Any]:
        text = tokenizer.piece(token_id).decode(errors="replace")
        return {"logprob": logprob, "rank": rank, "decoded_token": text}

    answer: list[dict[str, Any] | None] = [None]
    for token_id, entry in zip(prompt[1:], entries, strict=False):
        of_token = {str(token_id): told(token_id, entry.logprob, None)}
        for rank, (top, logprob) in enumerate(entry.top, 1):
            of_token[str(top)] = told(top, logprob, rank)
        answer.append(of_token)
    return answer
