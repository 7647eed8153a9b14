"""Chat over gRPC: stream an answer, then ask a follow-up question.

BATON_API_KEY is the key, for a frontend that requires one.
"""

import argparse
import sys

from baton.client import BatonClientError, Client, Message


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "address", nargs="?", default="127.0.0.1:50051", help="default: %(default)s"
    )
    address = parser.parse_args().address

    with Client(address) as client:
        model = client.models()[0].name
        messages: list[Message] = []
        for question in ("Please remember: my name is Ada.", "What is my name?"):
            print(f"> {question}")
            messages.append({"role": "user", "content": question})
            # With temperature 0, the model gives the same answer every time.
            with client.chat(messages, model=model, temperature=0, max_tokens=128) as stream:
                for text in stream.iter_text():
                    print(text, end="", flush=True)
            print()
            # The server keeps no conversation: each request has all messages. The prefix cache has
            # the KV of those that it has seen, so that only the new ones are computed.
            messages.append({"role": "assistant", "content": stream.text})


if __name__ == "__main__":
    try:
        main()
    except BatonClientError as error:
        sys.exit(f"error: {error}")
