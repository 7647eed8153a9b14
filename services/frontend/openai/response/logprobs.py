"""Log probabilities in OpenAI's two shapes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from baton.request.stream_events import TokenLogprob
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.tokenizer import Tokenizer


class Logprobs(ABC):
    """`logprobs` of one choice, as its tokens come."""

    def __init__(self, request: ResolvedRequest, *, as_ids: bool = False, begin: int = 0) -> None:
        """Begin.

        Args:
            request: whose output it is.
            as_ids: tokens are written as ids, in the shape `token_id:N`, instead of as texts.
            begin: where in the choice's text the output begins.
        """
        self._tokenizer = request.model.tokenizer
        self._as_ids = as_ids
        self._offset = self._begun = begin
        self._detokenizer = self._tokenizer.detokenizer(
            request.prompt, special=request.special_text
        )

    @abstractmethod
    def take(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob | None],
        offsets: Sequence[int] | None = None,
    ) -> dict[str, list[Any]]:
        """Return the entries of the next tokens, by field; those of all tokens are their sum.

        Args:
            token_ids: of the output, or of the prompt.
            logprobs: one of each.
            offsets: where in the choice's text tokens of the prompt begin; None: of the output.
        """

    def _text(self, token_id: int) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.piece(token_id).decode(errors="replace")


class ChatLogprobs(Logprobs):
    """Of a chat completion: `content` has an entry per token."""

    def take(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob | None],
        offsets: Sequence[int] | None = None,  # noqa: ARG002 - a conversation has none
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
    """Of a text completion: parallel lists; keeps count of where tokens stand in the text.

    A token begins behind the whole characters of those before it: the parts of one character begin
    where it does, and tokens that have no text where the next one does.
    """

    def take(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob | None],
        offsets: Sequence[int] | None = None,
    ) -> dict[str, list[Any]]:
        tokens = [self._text(token_id) for token_id in token_ids]
        if offsets is None:
            offsets = [self._begin(token_id) for token_id in token_ids]
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
            "text_offset": list(offsets),
        }

    def _begin(self, token_id: int) -> int:
        """Return where the output's next token begins."""
        self._begun = max(self._begun, self._offset + self._detokenizer.held)
        self._offset += len(self._detokenizer.push(token_id))
        return self._begun


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
