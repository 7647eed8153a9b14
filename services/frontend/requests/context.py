"""How long prompt and output may be together, and whose limit that is."""

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
    """Whose limit it is; None: the model's."""
    name: str = ""
    """Id of the key, project or tenant."""
    title: str = ""
    """What people call it, where that is not its id."""

    @classmethod
    def of(cls, model: ServedModel, allowed: "RequestContextLimit | None") -> "RequestContextLimit":
        """Return the model's, or what is allowed if that is shorter."""
        if allowed is not None and allowed.tokens < model.context_tokens:
            return allowed
        return cls(model.context_tokens)

    def exceeded(self, message: str, field: str) -> BatonError:
        """Return the error of a request that is longer, and count it where it is not the model's.

        It begins with OpenAI's words, by which clients tell that a shorter conversation would do.

        Args:
            message: what is too long, by how much, and what to do.
            field: of the request.
        """
        of_whom = ""
        if self.subject is not None:
            LIMIT_REFUSALS.labels("context_tokens", self.subject.value).inc()
            of_whom = f" for {whose(self.subject, self.name, self.title)}"
        limit = f"This model's maximum context length is {self.tokens} tokens{of_whom}."
        return BatonError(Reason.CONTEXT_LENGTH_EXCEEDED, f"{limit} {message}", field=field)
