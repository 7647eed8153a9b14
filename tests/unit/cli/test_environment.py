"""The command line in a pod, where Kubernetes sets variables for Services."""

import os

import pytest

from baton.cli.app import app, main


def test_variables_of_services_are_no_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATON_GRPC_PORT", "tcp://10.0.0.1:9000")
    monkeypatch.setenv("BATON_HTTP_PORT", "8001")
    monkeypatch.setattr("sys.argv", ["baton", "version"])
    # `main` leaves only the command that is asked for, which is for the process of a command.
    monkeypatch.setattr(app, "registered_commands", app.registered_commands)
    monkeypatch.setattr(app, "registered_groups", app.registered_groups)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, "BATON_GRPC_PORT" in os.environ) == (0, False)
    assert os.environ["BATON_HTTP_PORT"] == "8001"
    assert "baton" in capsys.readouterr().out
