"""Log probabilities in OpenAI's two formats."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from baton.request.stream_events import TokenLogprob
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.tokenizer import Tokenizer


class Logprobs(ABC):
    """`logprobs` of one choice, built up as its tokens arrive."""

    def __init__(self, request: ResolvedRequest, *, as_ids: bool = False, begin: int = 0) -> None:
        """Start without tokens.

        Args:
            request: the request.
            as_ids: write tokens as ids, in the format `token_id:N`, instead of as texts.
            begin: offset in the choice's text where the output begins.
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
        """Return the entries of the next tokens, by field, to be appended to earlier ones.

        Args:
            token_ids: of the output, or of the prompt.
            logprobs: one per token.
            offsets: in the choice's text, for tokens of the prompt; None: tokens of the output.
        """

    def _text(self, token_id: int) -> str:
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.piece(token_id).decode(errors="replace")


class ChatLogprobs(Logprobs):
    """`logprobs` of a chat completion: `content` has an entry per token."""

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
    """`logprobs` of a text completion: parallel lists, with the tokens' offsets in the text.

    A token begins after the whole characters of those before it: the parts of one character begin
    where it does, and tokens without text where the next one does.
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
        """Return the offset of the output's next token."""
        self._begun = max(self._begun, self._offset + self._detokenizer.held)
        self._offset += len(self._detokenizer.push(token_id))
        return self._begun


def prompt_logprobs(
    prompt: Sequence[int], entries: Sequence[TokenLogprob], tokenizer: Tokenizer
) -> list[dict[str, Any] | None]:
    """Return vLLM's `prompt_logprobs`: for each token, itself and the likeliest ones, by id.

    Args:
        prompt: its token ids.
        entries: one per token except the first, which has no predecessor.
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
