"""Cases with `buf curl`: connect-go, on Go's own HTTP/2; it learns the methods by reflection."""

import asyncio
import base64
import json
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from google.rpc.error_details_pb2 import ErrorInfo

SERVICE = "baton.v1.InferenceService"
_SECONDS = 60.0


class BufCurl:
    """Runs buf.

    Args:
        program: buf.
        descriptors: a file with those of services that the frontend does not have.
        address: of the frontend.
        model: that it serves.
    """

    def __init__(self, program: Path, descriptors: Path, address: str, model: str) -> None:
        self._descriptors = descriptors
        self._program = program
        self._address = address
        self._model = model

    async def run(self) -> int:
        """Run every case, print a line for each, and return how many failed."""
        failures = 0
        for case in (
            self.unary, self.server_streaming, self.error_details, self.metadata, self.killed,
            self.reflection, self.unimplemented, self.health, self.eight_at_once,
        ):  # fmt: skip
            name = case.__name__.replace("_", " ")
            try:
                print(f"ok    buf curl  {name}: {await case()}", flush=True)
            except (AssertionError, TimeoutError, KeyError, IndexError, ValueError) as error:
                failures += 1
                print(f"FAIL  buf curl  {name}: {error!r}", flush=True)
        return failures

    async def unary(self) -> str:
        answer = await self._answers("ListModels", {})
        assert answer[0]["models"][0]["name"] == self._model
        return self._model

    async def server_streaming(self) -> str:
        answers = await self._answers("Chat", self._chat(32))
        tokens = sum(len(one.get("delta", {}).get("tokenIds", ())) for one in answers)
        assert tokens == 32, tokens
        assert "finished" in answers[-1]
        return f"{len(answers)} events"

    async def error_details(self) -> str:
        code, _, errors = await self._curl("Chat", {"context": {"model": self._model}})
        error = json.loads(errors)
        assert code != 0 and error["code"] == "invalid_argument", errors
        info = next(one for one in error["details"] if one["type"] == "google.rpc.ErrorInfo")
        found = ErrorInfo.FromString(base64.b64decode(info["value"] + "=="))
        assert found.domain == "baton", found
        return f"{found.reason}: {error['message']}"

    async def metadata(self) -> str:
        answers = await self._answers("Chat", self._chat(1), "-H", "x-request-id: interop-buf-1")
        assert answers[0]["started"]["requestId"] == "interop-buf-1"
        return "interop-buf-1"

    async def killed(self) -> str:
        """A client that is gone in the middle of its answer; the next one is answered."""
        url = self._url(f"/{SERVICE}/Chat")
        request = json.dumps(self._chat(4000))
        child = await self._start(*self._options(), "-d", request, url)
        assert child.stdout is not None
        async with asyncio.timeout(_SECONDS):
            await child.stdout.readline()
        child.kill()
        await child.wait()
        await self.server_streaming()
        return "after the first line"

    async def reflection(self) -> str:
        code, output, errors = await self._run(*self._options(), "--list-methods", self._url(""))
        assert code == 0, errors
        assert f"{SERVICE}/Generate" in output, output
        return f"{len(output.split())} methods"

    async def unimplemented(self) -> str:
        schema = ("--schema", str(self._descriptors))
        url = self._url("/baton.internal.v1.RouterService/Place")
        arguments = (*schema, "--protocol", "grpc", "--http2-prior-knowledge", "-d", "{}", url)
        code, _, errors = await self._run(*arguments)
        assert code != 0 and json.loads(errors)["code"] == "unimplemented", errors
        return "a service of another process"

    async def health(self) -> str:
        url = self._url("/grpc.health.v1.Health/Check")
        code, output, errors = await self._run(*self._options(), "-d", "{}", url)
        assert code == 0 and json.loads(output)["status"] == "SERVING", errors
        return "SERVING"

    async def eight_at_once(self) -> str:
        all_of_them = await asyncio.gather(
            *(self._answers("Chat", self._chat(64)) for _ in range(8))
        )
        assert all("finished" in answers[-1] for answers in all_of_them)
        return "8 processes, 64 tokens each"

    def _chat(self, tokens: int) -> dict[str, object]:
        return {
            "context": {"model": self._model},
            "messages": [{"role": "user", "content": "Hello"}],
            "sampling": {"maxTokens": tokens, "ignoreEos": True},
        }

    def _url(self, path: str) -> str:
        return f"http://{self._address}{path}"

    def _options(self) -> tuple[str, ...]:
        return (
            "--protocol",
            "grpc",
            "--http2-prior-knowledge",
            "--reflect-protocol",
            "grpc-v1alpha",
        )

    async def _answers(self, method: str, request: object, *more: str) -> list[dict[str, dict]]:
        code, output, errors = await self._curl(method, request, *more)
        assert code == 0, errors
        decoder, at, found = json.JSONDecoder(), 0, []
        output = output.strip()
        while at < len(output):
            value, at = decoder.raw_decode(output, at)
            found.append(value)
            while at < len(output) and output[at].isspace():
                at += 1
        return found

    async def _curl(self, method: str, request: object, *more: str) -> tuple[int, str, str]:
        url = self._url(f"/{SERVICE}/{method}")
        return await self._run(*self._options(), *more, "-d", json.dumps(request), url)

    async def _start(self, *arguments: str) -> Process:
        return await asyncio.create_subprocess_exec(
            self._program, "curl", *arguments, stdout=PIPE, stderr=PIPE
        )

    async def _run(self, *arguments: str) -> tuple[int, str, str]:
        child = await self._start(*arguments)
        try:
            async with asyncio.timeout(_SECONDS):
                output, errors = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            raise
        assert child.returncode is not None
        return child.returncode, output.decode(), errors.decode()
