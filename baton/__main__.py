"""The `baton` command. Says what to install where the command needs more than there is."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

DISTRIBUTION = "baton-serving"
EXTRAS = {"": "cli", "chat": "cli", "models": "cli", "up": "local", "demo": "local"}
"""What a command needs beside the client, where that is not all of `server`."""
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line of this process."""
    arguments = sys.argv[1:]
    try:
        _run(arguments)
    except KeyboardInterrupt:  # while modules are imported, or options read
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("baton", "services") or find_spec(missing) is not None:
            raise
        command = arguments[0] if arguments and not arguments[0].startswith("-") else ""
        extra = EXTRAS.get(command, "server")
        sys.stderr.write(
            f"baton: {f'`baton {command}`' if command else 'the command line'} needs {missing}, "
            f"which is not installed: pip install '{DISTRIBUTION}[{extra}]'\n"
        )
        sys.exit(EXIT_USAGE)


def _run(arguments: Sequence[str]) -> NoReturn:
    match arguments:
        case ["serve", *rest]:  # a process needs nothing of the command line, which costs 0.1 s
            from baton.serve import main as serve

            serve(rest)
        case ["version"] | ["--version"]:
            from baton.rpc.protocol import describe

            sys.stdout.write(describe() + "\n")
            sys.exit()
        case _:
            from baton.cli.app import main as command_line

            command_line()


if __name__ == "__main__":
    main()
