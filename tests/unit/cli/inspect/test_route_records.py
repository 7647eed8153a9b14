"""Usage records of one request, from files and from ClickHouse, for `baton route explain`."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from baton.cli.inspect.route import records
from baton.cli.inspect.route.record_options import RecordOptions
from baton.cli.inspect.route.records import in_files, recorded
from baton.cli.shared.errors import CommandError
from baton.usage.record import encode
from tests.support.usage.records import begun, ended


class ClickHouse(BaseHTTPRequestHandler):
    """Returns lines to one query, or an error."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = (parse_qs(urlsplit(self.path).query), body, headers)
        self.server.asked.append(asked)  # type: ignore[attr-defined]
        code, answer = self.server.answer  # type: ignore[attr-defined]
        self.send_response(code)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def clickhouse(answer: bytes, code: int = 200) -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), ClickHouse)
    server.asked, server.answer = [], (code, answer)  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("chunk", [7, 1000, 1 << 20])
def test_records_are_found_in_files_however_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(records, "_CHUNK_BYTES", chunk)
    wanted, retried = ended(begun('a "quoted" id')), ended(begun('a "quoted" id'))
    others = [ended(begun(f"r{number}")) for number in range(20)]
    lines = [*map(encode, others), encode(wanted), *map(encode, others), encode(retried)]
    (tmp_path / "usage-1.jsonl").write_bytes(b"\n".join(lines))
    torn = encode(wanted)[:-20]
    (tmp_path / "usage-2.jsonl").write_bytes(b"\n".join([encode(wanted), torn]))
    (tmp_path / "other.jsonl").write_bytes(encode(wanted))
    found = list(in_files(tmp_path, wanted.request_id))
    assert found == [wanted, retried, wanted]
    options = RecordOptions(tmp_path)
    assert {one.id for one in recorded(options, wanted.request_id)} == {wanted.id, retried.id}
    assert recorded(options, "none") == []


def test_a_missing_directory_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no such file or directory"):
        recorded(RecordOptions(tmp_path / "none"), "r")


def test_clickhouse_is_asked_with_a_parameter_and_a_user() -> None:
    wanted = ended(begun("it's\tmine"))
    with clickhouse(encode(wanted) + b"\n") as server:
        url = f"http://us%40er:pass@127.0.0.1:{server.server_port}/"
        assert recorded(RecordOptions(None, url), wanted.request_id) == [wanted]
        ((parameters, query, headers),) = server.asked  # type: ignore[attr-defined]
    assert parameters == {"param_id": ["it's\\tmine"]}
    assert "where request_id = {id:String}" in query
    assert (headers["x-clickhouse-user"], headers["x-clickhouse-key"]) == ("us@er", "pass")


def test_what_clickhouse_rejects_and_where_it_is_not_are_sentences() -> None:
    with clickhouse(b"Code: 60. Unknown table", 404) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(CommandError, match=r"rejected the query: Code: 60\. Unknown table"):
            recorded(RecordOptions(None, url), "r")
    with pytest.raises(CommandError, match="is unreachable"):
        recorded(RecordOptions(None, url), "r")
    with pytest.raises(CommandError, match="is not an address such as"):
        recorded(RecordOptions(None, "clickhouse:8123"), "r")
