"""Tokenize and detokenize requests, which need no worker."""

from collections.abc import Sequence
from functools import partial
from time import monotonic

from baton.errors import invalid_field
from baton.settings import FrontendLimits
from baton.tenancy.records.tenants import Scope
from services.frontend.generation.resolution.model_finder import ModelFinder
from services.frontend.generation.resolution.prompts import PromptEncoder
from services.frontend.models.model import ServedModel
from services.frontend.models.registry import Registry
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.record import RequestRecord
from services.frontend.requests.request import (
    WHOLE_PROMPT,
    Prompt,
    PromptOptions,
    TokenPrompt,
)
from services.frontend.requests.validation.prompts import check_prompt, check_tokens
from services.frontend.text.tokenizer import TokenizerThreads


class Tokenization:
    """Tokenizes and detokenizes for clients. Runs on the event loop.

    Args:
        registry: the models.
        models: finds models.
        prompts: tokenizes prompts.
        threads: where long texts are processed.
        limits: bounds of clients' parameters.
    """

    def __init__(
        self,
        registry: Registry,
        models: ModelFinder,
        prompts: PromptEncoder,
        threads: TokenizerThreads,
        limits: FrontendLimits,
    ) -> None:
        self._registry = registry
        self._models = models
        self._prompts = prompts
        self._threads = threads
        self._limits = limits

    async def tokenize(
        self,
        model_name: str,
        prompt: Prompt,
        record: RequestRecord,
        options: PromptOptions = WHOLE_PROMPT,
    ) -> tuple[ServedModel, list[int]]:
        """Return the model and the ids of a prompt.

        Args:
            model_name: the client's name for it.
            prompt: what to tokenize.
            record: filled in.
            options: how to tokenize it.

        Raises:
            BatonError: it is rejected.
        """
        check_prompt(prompt, self._limits)
        model = await self.model(model_name, prompt, record)
        context = RequestContextLimit.of(model, None)
        return model, (await self._prompts.encode(model, prompt, context, options)).ids

    async def detokenize(
        self, model_name: str, token_ids: Sequence[int], record: RequestRecord, field: str
    ) -> str:
        """Return the text of token ids, including special tokens.

        `field` is the client's name for the ids; otherwise as `tokenize`.
        """
        prompt = TokenPrompt(token_ids)
        model = await self.model(model_name, prompt, record)
        context, tokenizer = RequestContextLimit.of(model, None), model.tokenizer
        check_tokens(field, (await self._prompts.encode(model, prompt, context)).ids, model)
        decode = partial(tokenizer.decode, token_ids, special=True)
        return await self._threads.run(decode, len(token_ids))

    async def model(self, model_name: str, prompt: Prompt, record: RequestRecord) -> ServedModel:
        """Return the model of a request about tokens.

        If only one model is served, the name may be omitted, as in vLLM.

        Raises:
            BatonError: the model is not served, or it is not named and several are served.
        """
        if not model_name:
            served = [one.name for one in self._registry.listed()]
            if len(served) != 1:
                raise invalid_field("model", "is required; /v1/models lists the models")
            (model_name,) = served
        record.name_model(model_name)
        record.principal.require(Scope.INFERENCE)
        if self._registry.is_auto(model_name):
            raise invalid_field("model", "auto chooses a model per request: name one of its models")
        self._models.require(record.principal, model_name)
        deadline = monotonic() + self._limits.default_deadline_seconds
        model = (await self._models.find(record.principal, model_name, "", prompt, deadline)).model
        record.served_model = model.name
        return model
