"""The progress of a request at a provider, and what it is charged for."""

from collections.abc import Sequence
from time import monotonic

from msgspec.structs import replace

from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Event,
    FinishReason,
    Started,
    Text,
)
from baton.usage.path import RequestPath
from services.frontend.generation.state.usage import RequestUsage
from services.frontend.metrics import FIRST_TOKEN, UPSTREAM_USAGE_ESTIMATED
from services.frontend.requests.request import ResolvedRequest
from services.frontend.workers.events import ProviderOutput, ProviderUsage

BYTES_PER_TOKEN = 4
"""Of an estimate, for English."""


class ProviderChoice:
    """The output of one choice: how it ended, and how much it was."""

    def __init__(self) -> None:
        self.reason: FinishReason | None = None
        self.pieces = self.bytes = 0

    @property
    def estimated_tokens(self) -> int:
        """Approximate tokens: one per piece at least, as most upstreams send them one by one."""
        return max(self.pieces, self.bytes // BYTES_PER_TOKEN)


class ProviderProgress:
    """The outputs and usage of one request. Owned by its `Generation`.

    Tokens are those that the provider counted, if they are possible, else an estimate.
    """

    def __init__(self, request: ResolvedRequest, arrived: float) -> None:
        self.request = request
        self.provider = request.model.owner
        """The provider that answers."""
        self.usage = RequestUsage(len(request.prompt), arrived)
        self._choices = [ProviderChoice() for _ in range(request.n)]
        self._arrived = arrived
        self._counted: int | None = None
        """Output tokens as the provider counted them."""

    @property
    def outputs(self) -> Sequence[ProviderChoice]:
        """One per choice."""
        return self._choices

    @property
    def output_tokens(self) -> int:
        """Output tokens over all choices; until the provider has counted them, an estimate."""
        if self._counted is not None:
            return self._counted
        estimated = sum(choice.estimated_tokens for choice in self._choices)
        return min(estimated, self.request.n * self.request.sampling.max_tokens)

    def path(self, now: float) -> RequestPath:
        """Return the path of the request, which ends now."""
        path = self.usage.path(self.request.context, now)
        return replace(path, provider=self.provider)

    def begin(self, events: list[Event]) -> None:
        """Report the start to the client."""
        request = self.request
        model, tokens = request.model, len(request.prompt)
        of = (request.id, model.name, 0, tokens, False)
        events.append(Started(*of, provider=self.provider, requested_model=request.requested))

    def add(self, output: ProviderOutput, events: list[Event]) -> None:
        """Add output of a choice."""
        choice, parts = self._choices[output.choice], output.parts
        if parts:
            if self.usage.first_token_at is None:
                self.usage.first_token_at = monotonic()
                seconds = self.usage.first_token_seconds or 0.0
                FIRST_TOKEN.labels(self.request.model.name).observe(seconds)
            choice.pieces += 1
            choice.bytes += output.bytes
            if len(parts) == 1 and type(parts[0]) is Text:
                events.append(Delta(output.choice, 0, (), parts[0].text, ()))
            else:
                text = "".join([part.text for part in parts if type(part) is Text])
                events.append(Delta(output.choice, 0, (), text, (), parts))
        if output.reason is not None:
            choice.reason = output.reason
            events.append(ChoiceFinished(output.choice, output.reason, ""))

    def count(self, usage: ProviderUsage | None) -> None:
        """Take what the provider counted, unless it did not, or it is impossible."""
        request, now = self.request, monotonic()
        if (
            usage is not None
            and 0 < usage.prompt_tokens <= request.prompt_bound
            and 0 <= usage.cached_tokens <= usage.prompt_tokens
            and 0 <= usage.output_tokens <= request.n * request.sampling.max_tokens
        ):
            self.usage.count_prompt(usage.prompt_tokens, usage.cached_tokens)
            self._counted = usage.output_tokens
        else:
            UPSTREAM_USAGE_ESTIMATED.labels(self.provider).inc()
        self.usage.add_upstream(self.provider, self._arrived, now, self.output_tokens)
