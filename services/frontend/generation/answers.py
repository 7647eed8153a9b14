"""How the answers of a request are read."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from baton.errors import BatonError, Reason
from baton.settings import TextSettings
from services.frontend.models.model import Model
from services.frontend.requests.request import ChatPrompt, GenerationRequest
from services.frontend.text.tokenizer import Tokenizer
from services.frontend.tools.definitions import Calls, ToolUse
from services.frontend.tools.formats import AnswerFormat, AnswerReader, answer_format


class Answers:
    """Knows how each model writes reasoning and calls. Lives on the event loop.

    Args:
        settings: which formats models have, where their chat templates do not show it.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        self._formats: WeakKeyDictionary[Tokenizer, AnswerFormat] = WeakKeyDictionary()

    def reader(
        self, request: GenerationRequest, model: Model, prompt: Sequence[int], seed: int
    ) -> AnswerReader | None:
        """Return what reads the answers of a request; None: they are nothing but text.

        Args:
            request: what the client sent, checked.
            model: that answers.
            prompt: its tokens.
            seed: of its draws.

        Raises:
            BatonError: UNSUPPORTED_PARAMETER, the model's answers have no calls, or its workers
                cannot keep to what is asked of them.
        """
        if not isinstance(request.prompt, ChatPrompt):
            return None
        found = self._format(model.tokenizer)
        if request.tools is not None:
            self._check(request.tools, found, model)
        return found.reader(request.tools, prompt, seed, request.request_id)

    def _format(self, tokenizer: Tokenizer) -> AnswerFormat:
        found = self._formats.get(tokenizer)
        if found is None:
            settings = self._settings
            found = answer_format(tokenizer, settings.tool_format, settings.reasoning_format)
            self._formats[tokenizer] = found
        return found

    def _check(self, use: ToolUse, found: AnswerFormat, model: Model) -> None:
        if found.family is None and use.calls is not Calls.NONE:
            raise _unsupported(
                "tools",
                f"the chat template of the model {model.name!r} shows no format of calls that is "
                "known; the operator can name it with text.tool_format",
            )


def _unsupported(field: str, why: str) -> BatonError:
    return BatonError(Reason.UNSUPPORTED_PARAMETER, f"{field}: {why}", field=field)
