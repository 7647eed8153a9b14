"""State of one streaming call: which request to send, how to handle events, when to retry.

Pure: no I/O, no clock. The sync and the async stream drive the same object:

    request, timeout = state.attempt(now)     # open a call with these
    event = state.receive(event)              # for each event; None: nothing for the user
    seconds = state.failed(error, now, r)     # the call broke: wait and begin again, or it raises
    state.ended()                             # the call ended by itself
"""

from copy import deepcopy

from baton.client.answer import Answer, Output, answer_of
from baton.client.errors import BatonClientError, ProtocolError
from baton.client.retry import Attempts, frontend_lost
from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    PromptLogprobs,
    Started,
    TokenLogprob,
)
from baton.v1 import conversations_pb2, inference_pb2

InferenceRequest = inference_pb2.GenerateRequest | inference_pb2.ChatRequest
Request = InferenceRequest | conversations_pb2.SendMessageRequest


class StreamState:
    """Progress of one call over all its attempts."""

    def __init__(self, request: Request, attempts: Attempts, *, resume: bool) -> None:
        """Create the state of a call.

        Args:
            request: the user's request; it is not modified.
            attempts: the call's deadline and its number of attempts.
            resume: whether to continue elsewhere when the frontend is lost mid-stream.

        Raises:
            ValueError: resume needs n = 1.
        """
        choices = 1
        if not isinstance(request, conversations_pb2.SendMessageRequest):
            choices = max(1, request.n)
        if resume and choices > 1:
            raise ValueError("resume=True needs n=1")
        self._request = request
        self._attempts = attempts
        self._resume = resume
        self._choices = choices
        self.prompt_logprobs: list[TokenLogprob] = []
        self.outputs: dict[int, Output] = {}
        self.started: Started | None = None
        self.finished: Finished | None = None
        self._resumed = False

    @property
    def request_id(self) -> str:
        """Names the request in the cluster's logs and traces, over all attempts."""
        return self._request.context.request_id

    def attempt(self, now: float) -> tuple[Request, float]:
        """Return the request for the next attempt, and its timeout in seconds."""
        return self._continuation(), self._attempts.timeout(now)

    def receive(self, event: Event | None) -> Event | None:
        """Process an event and return the one for the user; None if there is none.

        Raises:
            ProtocolError: the event cannot follow the earlier ones.
        """
        if type(event) is Delta:  # the hot path
            output = self._open_output(event.choice)
            if event.position != len(output.token_ids):
                raise ProtocolError(
                    f"choice {event.choice} went on at position {event.position} "
                    f"after {len(output.token_ids)} tokens"
                )
            output.add(event)
            return event
        match event:
            case Started():
                if self.started is not None:  # a later attempt repeats what the user has received
                    return None
                self.started = event
            case PromptLogprobs():
                return self._of_prompt(event)
            case ChoiceFinished():
                if self._resumed and self.outputs[event.choice].end is not None:
                    return None  # only Finished was missing
                self._open_output(event.choice).end = event
            case Finished():
                if sum(output.end is not None for output in self.outputs.values()) < self._choices:
                    raise ProtocolError("the stream finished before all choices had")
                self.finished = event
        return event

    def failed(self, error: BatonClientError, now: float, jitter: float) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            BatonClientError: `error` itself, if a retry is unsafe or pointless.
        """
        if self.started is None:
            return self._attempts.failed(error, now, jitter)
        if not self._can_resume(error):
            raise error
        return self._attempts.lost(error, len(self.token_ids()), now, jitter)

    def ended(self) -> None:
        """Check a call that ended with status OK.

        Raises:
            ProtocolError: there was no Finished.
        """
        if self.finished is None:
            raise ProtocolError("the stream ended without Finished")

    def answer(self) -> Answer:
        """Return the complete answer of a finished stream.

        Raises:
            ProtocolError: it has not finished.
        """
        if self.started is None or self.finished is None:
            raise ProtocolError("the stream has not finished")
        outputs = [self.outputs[choice] for choice in range(self._choices)]
        return answer_of(self.started, self.prompt_logprobs, outputs, self.finished)

    def text(self, choice: int = 0) -> str:
        """Return the text of a choice so far."""
        return "".join(self.outputs[choice].texts) if choice in self.outputs else ""

    def token_ids(self, choice: int = 0) -> tuple[int, ...]:
        """Return the tokens of a choice so far."""
        return tuple(self.outputs[choice].token_ids) if choice in self.outputs else ()

    def _can_resume(self, error: BatonClientError) -> bool:
        # Differently sampled tokens would not match those that the user has.
        # A provider's text has no tokens.
        received = any(output.token_ids or output.texts for output in self.outputs.values())
        exact = self.started is None or self.started.exact_continuation or not received
        return self._resume and exact and frontend_lost(error)

    def _continuation(self) -> Request:
        """Return the user's request; once started, with its seed and the received tokens."""
        if not self._attempts.failures:
            return self._request
        request = deepcopy(self._request)
        if isinstance(request, conversations_pb2.SendMessageRequest):
            return request  # it claims no execution, and is not resumed
        request.context.attempt = self._attempts.failures
        if self.started is None:
            return request
        if self.token_ids():
            self._resumed = True
            request.resume.output_ids.extend(self.token_ids())
            # An alias may mean another model by now.
            request.context.model = self.started.model
            request.context.adapter = self.started.adapter
            request.resume.seed = self.started.seed
        else:
            request.sampling.seed = self.started.seed
        return request

    def _of_prompt(self, event: PromptLogprobs) -> PromptLogprobs | None:
        """Return an event's prompt data that no earlier attempt has delivered."""
        if self.started is None:
            raise ProtocolError("log probabilities of the prompt came before Started")
        next_position = len(self.prompt_logprobs) + 1  # the first token has none
        if event.position > next_position:
            raise ProtocolError(
                f"log probabilities of the prompt went on at position {event.position} "
                f"instead of {next_position}"
            )
        if not (new := event.entries[next_position - event.position :]):
            return None
        self.prompt_logprobs += new
        return PromptLogprobs(next_position, new)

    def _open_output(self, choice: int) -> Output:
        if self.started is None:
            raise ProtocolError("output came before Started")
        output = self.outputs.get(choice)
        if output is None:
            output = self.outputs[choice] = Output()
        if not 0 <= choice < self._choices or output.end is not None:
            raise ProtocolError(f"choice {choice} does not exist or has ended")
        return output
