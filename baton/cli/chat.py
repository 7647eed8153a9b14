"""`baton chat`: a conversation on the terminal, and `baton models`."""

import sys
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from baton.cli.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from baton.cli.render import AnswerPrinter, print_steps, usage_line
from baton.client import (
    BatonClientError,
    Client,
    ConnectionFailedError,
    DeadlineError,
    InvalidRequestError,
    Message,
    NotFoundError,
    Options,
)

HELP = "Type a message. /new begins afresh, /quit or Ctrl-D leaves, Ctrl-C cuts an answer off."


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whom to ask, and how."""

    address: str
    model: str
    system: str
    steps: bool
    """Show what happened after each answer."""
    options: Options


class Conversation:
    """Messages so far, and the next answer."""

    def __init__(self, client: Client, model: str, speaker: Speaker, console: Console) -> None:
        self._client = client
        self._model = model
        self._speaker = speaker
        self._console = console
        self._messages: list[Message] = []
        self.forget()

    @property
    def too_slow(self) -> str:
        """What to say when an answer's time ran out."""
        return _too_slow(self._speaker)

    def forget(self) -> None:
        """Begin afresh."""
        system: Message = {"role": "system", "content": self._speaker.system}
        self._messages = [system] if self._speaker.system else []

    def ask(self, question: str) -> None:
        """Print the answer as it comes. One that fails or is cut off is not remembered."""
        messages: list[Message] = [*self._messages, {"role": "user", "content": question}]
        begun = time.monotonic()
        printer = AnswerPrinter(self._console)
        options = self._speaker.options
        with self._client.chat(messages, model=self._model, **options) as stream:
            for event in stream:
                printer.feed(event)
        self._messages = [*messages, {"role": "assistant", "content": stream.text}]
        if stream.finished is not None:
            if self._speaker.steps:
                print_steps(self._console, stream.finished.steps)
            self._console.print(usage_line(stream.finished.usage, time.monotonic() - begun))


def chat(speaker: Speaker, question: str, console: Console) -> None:
    """Ask one question, or converse when there is none.

    Raises:
        CommandError: there is no frontend or model, or the question was refused.
    """
    with Client(speaker.address) as client:
        try:
            model = speaker.model or _only_model(client)
            conversation = Conversation(client, model, speaker, console)
            if question:
                conversation.ask(question)
            else:
                _converse(conversation, model, console)
        except DeadlineError as error:
            raise CommandError(_too_slow(speaker), EXIT_FAILED) from error
        except BatonClientError as error:
            raise _sentence(error, speaker.address) from error


def models(address: str, console: Console) -> None:
    """List the models that can be asked.

    Raises:
        CommandError: there is no frontend.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("model", style="bold")
    table.add_column("context", justify="right")
    table.add_column("vocabulary", justify="right")
    table.add_column("features")
    with Client(address) as client:
        try:
            for model in client.models(timeout=10.0):
                table.add_row(
                    model.name,
                    str(model.context_tokens),
                    str(model.vocab_tokens),
                    ", ".join(model.features),
                )
        except BatonClientError as error:
            raise _sentence(error, address) from error
    console.print(table)


def _converse(conversation: Conversation, model: str, console: Console) -> None:
    asks = sys.stdin.isatty()
    if asks:
        import readline  # noqa: F401  # gives `input` its editing

        console.print(f"{model}. {HELP}", style="dim", highlight=False)
    while True:
        try:
            line = input("> " if asks else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            console.print()
            return
        if line in ("/quit", "/exit"):
            return
        if line == "/new":
            conversation.forget()
        elif line == "/help":
            console.print(HELP, style="dim")
        elif line:
            _turn(conversation, line, console)


def _turn(conversation: Conversation, question: str, console: Console) -> None:
    try:
        conversation.ask(question)
    except KeyboardInterrupt:
        console.print("\n(cut off, not remembered)", style="dim")
    except ConnectionFailedError:
        raise
    except DeadlineError:
        console.print(f"\n{conversation.too_slow}", style="red", highlight=False)
    except BatonClientError as error:
        console.print(f"\n{error}", style="red", highlight=False)


def _too_slow(speaker: Speaker) -> str:
    seconds = speaker.options.get("timeout", 0)
    return f"The answer was not complete within {seconds:g} s: --timeout gives it longer."


def _only_model(client: Client) -> str:
    names = [model.name for model in client.models(timeout=10.0)]
    if len(names) != 1:
        there = f"choose one of {', '.join(names)} with --model" if names else "no worker is up"
        raise CommandError(f"There are {len(names)} models: {there}.")
    return names[0]


def _sentence(error: BatonClientError, address: str) -> CommandError:
    if isinstance(error, ConnectionFailedError):
        return CommandError(
            f"No frontend answers at {address} ({error}): start one with `baton up`, or say where "
            "it is with --address or BATON_ADDRESS.",
            EXIT_FAILED,
        )
    wrong = isinstance(error, InvalidRequestError | NotFoundError)
    return CommandError(str(error), EXIT_USAGE if wrong else EXIT_FAILED)
