"""The output of one choice: from tokens to text, and where it ends."""

from collections.abc import Sequence

from baton.request.stream_events import Delta, FinishReason, Text, TokenLogprob
from baton.v1 import common_pb2
from services.frontend.output.lexer import Lexer
from services.frontend.requests.request import ResolvedRequest
from services.frontend.text.stop_strings import StopScanner


class ChoiceOutput:
    """The output of one choice so far.

    Tokens come in order; the text is the same however they are split into messages.

    The output ends by the engine's rules (end of sequence, stop tokens, max_tokens), and by stop
    strings, which only the frontend knows. The token that ends the output is one of its tokens; a
    stop token is not part of its text.
    """

    def __init__(self, request: ResolvedRequest, choice: int) -> None:
        sampling = request.sampling
        self.choice = choice
        self.token_ids: list[int] = []
        self.reason: FinishReason | None = None
        """Why it ended; None while it continues."""
        self.stop_string = ""
        self.stop_token_id: int | None = None
        """The request's own stop token that ended it, if any."""
        self.decoded = False
        """Whether a decode worker produced some of its tokens in this request."""
        self.exact_continuation = True
        """Whether all those decode workers sample as others of their kind do."""
        self._max_tokens = 0 if request.no_output else sampling.max_tokens
        self._min_tokens = sampling.min_tokens
        self._stop_tokens = frozenset(sampling.stop_token_ids)
        self._own_stop_tokens = self._stop_tokens
        if not sampling.ignore_eos:
            self._stop_tokens |= request.model.eos_token_ids
            self._own_stop_tokens -= request.model.eos_token_ids
        self._include_stop = request.include_stop
        tokenizer = request.model.tokenizer
        self._detokenizer = tokenizer.detokenizer(request.prompt, special=request.special_text)
        self._scanner = StopScanner(request.stop) if request.stop else None
        self._lexer = None if request.reader is None else request.reader.lexer(choice)
        """Parses the scanner's text."""

    @property
    def ended(self) -> bool:
        return self.reason is not None

    def push(
        self, token_ids: Sequence[int], logprobs: Sequence[common_pb2.TokenLogprob] = ()
    ) -> Delta:
        """Add new tokens, up to the one that ends the output, which must be the last."""
        mine = self.token_ids
        position = count = len(mine)
        pieces: list[str] = []
        if not self._max_tokens:
            self._end(FinishReason.LENGTH, pieces)
            return Delta(self.choice, 0, (), "", ())
        for token in token_ids:
            mine.append(token)
            count += 1
            if token in self._stop_tokens and count > self._min_tokens:
                if token in self._own_stop_tokens:
                    self.stop_token_id = token
                if self._include_stop:
                    self._say(self._detokenizer.push(token), pieces)
                self._end(FinishReason.STOP, pieces)
                break
            if self._lexer is not None and token in self._lexer.markers:
                self._mark(self._lexer, token, pieces)
                text = ""
            else:
                text = self._detokenizer.push(token)
            if self._scanner is None:
                pieces.append(text)
            else:
                self._say(text, pieces)
            if self.reason is None and count >= self._max_tokens:
                self._end(FinishReason.LENGTH, pieces)
            if self.reason is not None:
                break
        text = pieces[0] if len(pieces) == 1 else "".join(pieces)
        entries: Sequence[TokenLogprob] = ()
        if logprobs:
            entries = [TokenLogprob.from_proto(entry) for entry in logprobs[: count - position]]
        if self._lexer is not None:
            return self._read(self._lexer, position, mine[position:], text, entries)
        return Delta(self.choice, position, mine[position:], text, entries)

    def end(self, reason: FinishReason) -> Delta:
        """End the output because the engine ended it; the delta contains the text held back."""
        pieces: list[str] = []
        if self.reason is None:
            self._end(reason, pieces)
        text = "".join(pieces)
        if self._lexer is not None:
            return self._read(self._lexer, len(self.token_ids), (), text, ())
        return Delta(self.choice, len(self.token_ids), (), text, ())

    def _mark(self, lexer: Lexer, token: int, pieces: list[str]) -> None:
        """Pass a special token to the lexer, after all text before it."""
        self._say(self._detokenizer.flush(), pieces)
        if self.reason is None:
            if self._scanner is not None:
                pieces.append(self._scanner.flush())
            lexer.push("".join(pieces))
            pieces.clear()
            lexer.push_marker(lexer.markers[token])

    def _read(
        self,
        lexer: Lexer,
        position: int,
        token_ids: Sequence[int],
        text: str,
        logprobs: Sequence[TokenLogprob],
    ) -> Delta:
        """Return the lexer's delta for a text."""
        lexer.push(text)
        if self.reason is not None:
            lexer.end(cut=self.reason is FinishReason.LENGTH)
            if lexer.calls and self.reason is FinishReason.STOP and not self.stop_string:
                self.reason = FinishReason.TOOL_CALLS
        parts = lexer.take()
        if not parts:
            return Delta(self.choice, position, token_ids, "", logprobs)
        if len(parts) == 1 and type(parts[0]) is Text:
            return Delta(self.choice, position, token_ids, parts[0].text, logprobs)
        text = "".join([part.text for part in parts if type(part) is Text])
        return Delta(self.choice, position, token_ids, text, logprobs, parts)

    def _say(self, text: str, pieces: list[str]) -> None:
        if self._scanner is None:
            pieces.append(text)
        elif text:
            scanned = self._scanner.push(text)
            pieces.append(scanned.text)
            if scanned.stop is not None:
                if self._include_stop:
                    pieces.append(scanned.stop)
                self.reason, self.stop_string = FinishReason.STOP, scanned.stop

    def _end(self, reason: FinishReason, pieces: list[str]) -> None:
        self._say(self._detokenizer.flush(), pieces)
        if self.reason is None:
            self.reason = reason
            if self._scanner is not None:
                pieces.append(self._scanner.flush())
