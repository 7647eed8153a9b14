"""The command line in this process prints what the command prints, whoever logs beside it."""

import threading

import pytest
import structlog
import typer

from tests.support import command_line


def test_log_of_another_thread_stays_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.command()
    def both() -> None:
        beside = threading.Thread(target=_log, args=("beside",))
        beside.start()
        beside.join()
        _log("here")

    monkeypatch.setattr(command_line, "app", app)
    before = structlog.get_config()["logger_factory"]
    printed = command_line.invoke([]).output
    assert "where=here" in printed and "where=beside" not in printed
    assert "where=beside" in capsys.readouterr().out
    assert structlog.get_config()["logger_factory"] is before


def _log(where: str) -> None:
    structlog.get_logger().info("engine.step.ended", where=where)
