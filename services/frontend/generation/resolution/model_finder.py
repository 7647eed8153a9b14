"""Find the model of a request, waiting for it if necessary."""

import asyncio
from time import monotonic

from baton.errors import BatonError, Reason
from baton.tenancy.directory.principal import Principal
from services.frontend.generation.resolution.prompts import size_of
from services.frontend.models.model import ProvidedBy, ResolvedModel
from services.frontend.models.policies import Policies
from services.frontend.models.registry import Registry
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.requests.request import (
    ChatPrompt,
    Prompt,
    TextPrompt,
)

_BEGINNING = 1024
"""Characters or tokens of a prompt without messages that name its conversation."""


class ModelFinder:
    """Finds the models of requests. Runs on the event loop.

    Args:
        registry: the models.
        waiting: holds requests while only workers or a tokenizer are missing.
        policies: of the models.
    """

    def __init__(self, registry: Registry, waiting: WorkerWaitQueue, policies: Policies) -> None:
        self._registry = registry
        self._waiting = waiting
        self._policies = policies

    def require(self, who: Principal, name: str, adapter: str = "") -> None:
        """Check that a key may be used for a model, or for one of its adapters.

        Raises:
            BatonError: MODEL_NOT_ALLOWED.
        """
        self._registry.aliases.require(who, name, adapter)

    def hedge_of(self, at: ProvidedBy) -> ProvidedBy | None:
        """Return the model of another provider that may be asked instead; None: there is none."""
        found = self._registry.provided(at.model.hedge) if at.model.hedge else None
        return None if found is None or found.provider.id == at.provider.id else found

    def meaning(self, name: str, prompt: Prompt) -> str:
        """Return the model or adapter that a name means in a request: itself, unless it is an
        alias."""
        alias = self._registry.alias(name)
        return name if alias is None else alias.choose(conversation_of(prompt))

    async def find(
        self,
        who: Principal,
        name: str,
        adapter: str,
        prompt: Prompt,
        deadline: float,
        max_wait: float | None = None,
    ) -> ResolvedModel:
        """Return the model of a request; wait while only workers or a tokenizer are missing.

        An alias means the same model for all requests of a conversation.

        Args:
            who: the caller.
            name: the model, as the client names it.
            adapter: one of its adapters; empty: none.
            prompt: of the request.
            deadline: end of the wait, by `monotonic`.
            max_wait: the longest predicted wait, in seconds; None: as long as for any request.

        Raises:
            BatonError: as for `Registry.get`, `Policies.require` and `WorkerWaitQueue.enter`, or
                DEADLINE.
        """
        while True:
            model = self.meaning(name, prompt)
            try:
                found = self._registry.get(model, adapter)
            except BatonError as error:
                if error.reason not in (Reason.NO_WORKER, Reason.MODEL_LOADING):
                    raise
                missing = error
            else:
                self._policies.require(who, found)
                return found
            if max_wait is not None and not self._waiting.expects(model, missing, max_wait):
                raise missing
            try:
                async with asyncio.timeout(max(0.0, deadline - monotonic())):
                    await self._waiting.wait(model, size_of(prompt), missing, max_wait)
            except TimeoutError:
                late = "no worker was available before the request's deadline"
                raise BatonError(Reason.DEADLINE, late) from missing


def conversation_of(prompt: Prompt) -> bytes:
    """Return what all requests of a conversation have in common.

    That is its beginning up to the first message of the user, since each turn repeats the earlier
    ones; of a prompt without messages, its first 1,024 characters or tokens.
    """
    match prompt:
        case ChatPrompt():
            first = next(
                (i for i, one in enumerate(prompt.messages) if one.role == "user"),
                len(prompt.messages) - 1,
            )
            parts = [(one.role, one.content) for one in prompt.messages[: first + 1]]
        case TextPrompt():
            parts = [("", prompt.text[:_BEGINNING])]
        case _:
            parts = [("", " ".join(map(str, prompt.ids[:_BEGINNING])))]
    return "\0".join(f"{role}\0{text}" for role, text in parts).encode(errors="replace")
