"""Webhooks over HTTP with OpenAI's client: run a batch, and receive the signed event of its end.

The cluster must call this machine: BATON_WEBHOOKS_ALLOW=127.0.0.0/8 baton up --batches --webhooks
OPENAI_API_KEY is the key, for a frontend that requires one.
"""

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from openai import InvalidWebhookSignatureError, OpenAI, OpenAIError

API_KEY = os.environ.get("OPENAI_API_KEY", "none")


class Receiver(HTTPServer):
    """Receives events on a free port of this machine."""

    secret = ""
    event: Any = None


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # as the base class calls it
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            client = OpenAI(api_key=API_KEY, webhook_secret=self.server.secret)
            self.server.event = client.webhooks.unwrap(body, dict(self.headers))
        except (InvalidWebhookSignatureError, ValueError):
            self.send_error(400)  # not from the cluster, or older than five minutes
            return
        self.send_response(204)  # quickly: work that takes time is done afterwards
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print no line per request."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "http://127.0.0.1:8000/v1"
    parser.add_argument("base_url", nargs="?", default=default, help="default: %(default)s")
    base_url = parser.parse_args().base_url

    with (
        OpenAI(base_url=base_url, api_key=API_KEY) as client,
        Receiver(("127.0.0.1", 0), Handler) as receiver,
    ):
        endpoint = client.webhooks.create(
            name="example",
            url=f"http://127.0.0.1:{receiver.server_port}/",
            event_types=["batch.completed", "batch.failed"],
        )
        receiver.secret = endpoint.signing_secret
        model = client.models.list().data[0].id
        hello = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        made: Any = client.post("/batch", cast_to=object, body={"requests": [{"body": hello}]})
        while receiver.event is None:
            receiver.handle_request()
        client.webhooks.delete(endpoint.id)
        assert receiver.event.data.id == made["batch_id"]
        print(receiver.event.type)
        batch = client.batches.retrieve(receiver.event.data.id)
        for line in client.files.content(batch.output_file_id or "").content.splitlines():
            answer = json.loads(line)
            print(
                answer["custom_id"], answer["response"]["body"]["choices"][0]["message"]["content"]
            )


if __name__ == "__main__":
    try:
        main()
    except OpenAIError as error:
        sys.exit(f"error: {error}")
