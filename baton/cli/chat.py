"""`baton chat`: a conversation on the terminal, and `baton models`."""

import json
import re
import sys
import time
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from baton.cli.shared.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from baton.cli.shared.options import ChatCommandOptions, FrontendOptions
from baton.cli.shared.render import AnswerPrinter, print_steps, usage_line
from baton.cli.shared.table import TextTable, show
from baton.client import (
    AuthenticationError,
    BatonClientError,
    Client,
    ConnectionFailedError,
    DeadlineError,
    InvalidRequestError,
    Message,
    NotFoundError,
)

HELP = "Type a message. /new starts a new chat, /quit or Ctrl-D exits, Ctrl-C cancels an answer."
_COMMAND = re.compile(r"/[a-z]+")


class Conversation:
    """The messages so far, and the next reply."""

    def __init__(
        self, client: Client, model: str, options: ChatCommandOptions, console: Console
    ) -> None:
        self._client = client
        self._model = model
        self._options = options
        self._console = console
        self._messages: list[Message] = []
        self.clear()

    def clear(self) -> None:
        """Start a new chat."""
        system: Message = {"role": "system", "content": self._options.system}
        self._messages = [system] if self._options.system else []

    def ask(self, question: str) -> None:
        """Print the reply as it streams. A failed or stopped one is not kept."""
        messages: list[Message] = [*self._messages, {"role": "user", "content": question}]
        begun = time.monotonic()
        printer = AnswerPrinter(self._console)
        sampling = self._options.sampling()
        try:
            with self._client.chat(messages, model=self._model, **sampling) as stream:
                for event in stream:
                    printer.feed(event)
        finally:
            printer.flush()
        self._messages = [*messages, {"role": "assistant", "content": stream.text}]
        if stream.finished is not None:
            if self._options.steps:
                print_steps(self._console, stream.finished.steps)
            self._console.print(usage_line(stream.finished.usage, time.monotonic() - begun))


def chat(address: str, options: ChatCommandOptions, question: str, console: Console) -> None:
    """Ask the frontend at an address one question, or converse when there is none.

    Raises:
        CommandError: there is no frontend or model, or the request was rejected or cancelled.
    """
    with Client(address, credentials=options.credentials()) as client:
        try:
            model = options.model or _only_model(client)
            conversation = Conversation(client, model, options, console)
            if question:
                conversation.ask(question)
            else:
                _converse(conversation, model, options, console)
        except KeyboardInterrupt:
            console.print()
            raise CommandError("Cancelled by Ctrl-C.", EXIT_INTERRUPTED) from None
        except DeadlineError as error:
            raise CommandError(_timed_out(options), EXIT_FAILED) from error
        except BatonClientError as error:
            raise _sentence(error, address) from error


def models(address: str, options: FrontendOptions, console: Console, as_json: bool) -> None:
    """List the models that are served.

    Args:
        address: address of the frontend.
        options: how to reach it.
        console: to print on.
        as_json: print JSON, an object per model with the fields of `baton.client.Model`.

    Raises:
        CommandError: there is no frontend.
    """
    with Client(address, credentials=options.credentials()) as client:
        try:
            served = client.models(timeout=10.0)
        except BatonClientError as error:
            raise _sentence(error, address) from error
    if as_json:
        console.print_json(json.dumps([asdict(model) for model in served]))
        return
    numbers = ("context", "vocabulary")
    columns = (
        "model",
        "state",
        *numbers,
        "engine",
        "dtype",
        "same tokens",
        "features",
        "adapters",
        "aliases",
        "defaults",
    )
    table = TextTable(columns, right=frozenset(numbers))
    for model in served:
        table.add(
            Text(model.name, style="bold"),
            model.state.replace("_", " "),
            str(model.context_tokens),
            str(model.vocab_tokens or ""),
            model.engine,
            model.dtype,
            {True: "yes", False: "no", None: ""}[model.deterministic],
            ", ".join(model.features),
            ", ".join(model.adapters),
            ", ".join(model.aliases),
            ", ".join(f"{name} {value}" for name, value in model.sampling_defaults.items()),
        )
    show(console, table)
    for model in served:
        if model.inexact_reason:
            told = f"{model.name}: {model.inexact_reason}."
            console.print(told, style="dim", highlight=False)


def _converse(
    conversation: Conversation, model: str, options: ChatCommandOptions, console: Console
) -> None:
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401  # gives `input` its editing

        console.print(f"{model}. {HELP}", style="dim", highlight=False)
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            console.print()
            return
        if line in ("/quit", "/exit"):
            return
        if line == "/new":
            conversation.clear()
        elif line == "/help":
            console.print(HELP, style="dim")
        elif _COMMAND.fullmatch(line):
            console.print(f"Unknown command {line}. {HELP}", style="dim", highlight=False)
        elif line:
            _turn(conversation, line, options, console)


def _turn(
    conversation: Conversation, question: str, options: ChatCommandOptions, console: Console
) -> None:
    try:
        conversation.ask(question)
    except KeyboardInterrupt:
        console.print(
            "\n(cancelled; the chat does not keep this question and its answer)", style="dim"
        )
    except ConnectionFailedError:
        raise
    except DeadlineError:
        console.print(f"\n{_timed_out(options)}", style="red", highlight=False)
    except BatonClientError as error:
        console.print(f"\n{error}", style="red", highlight=False)


def _timed_out(options: ChatCommandOptions) -> str:
    return f"The answer was not complete within {options.timeout:g} s: set a longer --timeout."


def _only_model(client: Client) -> str:
    names = [model.name for model in client.models(timeout=10.0)]
    if len(names) != 1:
        there = f"choose one of {', '.join(names)} with --model" if names else "no worker is ready"
        raise CommandError(f"The cluster serves {len(names)} models: {there}.")
    return names[0]


def _sentence(error: BatonClientError, address: str) -> CommandError:
    if isinstance(error, ConnectionFailedError):
        return CommandError(
            f"The frontend at {address} is unreachable ({error}): list frontends with `baton "
            "status`, "
            "and set --address or BATON_ADDRESS.",
            EXIT_FAILED,
        )
    if isinstance(error, AuthenticationError):
        return CommandError(
            f"{error}: set BATON_API_KEY, or create a key with `baton keys create`."
        )
    wrong = isinstance(error, InvalidRequestError | NotFoundError)
    return CommandError(str(error), EXIT_USAGE if wrong else EXIT_FAILED)
