"""The most tokens of prompt and output together, and whose limit that is."""

from dataclasses import dataclass

from baton.errors import BatonError, Reason
from baton.tenancy.limits.spec import Subject, whose
from services.frontend.metrics import LIMIT_REFUSALS
from services.frontend.models.model import ServedModel


@dataclass(frozen=True, slots=True)
class RequestContextLimit:
    """The most tokens of prompt and output of one request."""

    tokens: int
    subject: Subject | None = None
    """The kind of owner of the limit; None: the limit is the model's."""
    name: str = ""
    """Id of the key, project or tenant."""
    title: str = ""
    """The display name, if it differs from the id."""
    tier: str = ""
    """The tier of tenants that the model's policy sets it for; empty: it is not the policy's."""

    @classmethod
    def of(cls, model: ServedModel, allowed: "RequestContextLimit | None") -> "RequestContextLimit":
        """Return the model's limit, or the caller's if that is lower."""
        if allowed is not None and allowed.tokens < model.context_tokens:
            return allowed
        return cls(model.context_tokens)

    def within(self, tokens: int | None, tier: str) -> "RequestContextLimit":
        """Return the limit, or that of a tier by the model's policy if it is lower; None: none."""
        if tokens is None or tokens >= self.tokens:
            return self
        return RequestContextLimit(tokens, tier=tier)

    def exceeded(self, message: str, field: str) -> BatonError:
        """Return the error of a longer request, and count it unless the limit is the model's.

        The message starts with OpenAI's words, by which clients recognize that a shorter
        conversation would fit.

        Args:
            message: what is too long, by how much, and what to do.
            field: the field of the request.
        """
        of_whom = ""
        if self.subject is not None:
            LIMIT_REFUSALS.labels("context_tokens", self.subject.value).inc()
            of_whom = f" for {whose(self.subject, self.name, self.title)}"
        elif self.tier:
            of_whom = f" for tenants of tier {self.tier!r}"
        limit = f"This model's maximum context length is {self.tokens} tokens{of_whom}."
        return BatonError(Reason.CONTEXT_LENGTH_EXCEEDED, f"{limit} {message}", field=field)
