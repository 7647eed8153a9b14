"""Checks the settings of each process of a local cluster before any of them starts."""

from dataclasses import dataclass
from pathlib import Path

from baton.cli.cluster.local.compiling.operators import EngineOperators
from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.plan import HOST
from baton.cli.cluster.local.ports import require_free
from baton.cli.cluster.local.processes.child import ServiceProcess
from baton.cli.cluster.local.spec import ProcessSpec
from baton.cli.shared.config_file import given_variables
from baton.cli.shared.errors import CommandError
from baton.engine.support.preflight import check_engine
from baton.settings import (
    SERVICE_SETTINGS,
    FrontendSettings,
    ProcessSettings,
    StartupError,
    WorkerSettings,
    fields_of,
    load,
)
from baton.settings.names import CONFIG_ENV, CONFIG_FLAG

HISTORY_ENV = "BATON_HISTORY_PATH"
STOP_SLACK_SECONDS = 2.0
"""Time after its drain period at which a process is killed."""


@dataclass(frozen=True, slots=True)
class PreparedProcess:
    """A process that may start, and the settings that it will have."""

    spec: ProcessSpec
    child: ServiceProcess
    settings: ProcessSettings


class Preparation:
    """Prepares the processes of one cluster.

    Args:
        config: the settings file; None: there is none.
        directory: of the run.
        reporter: prints what engines lack.
    """

    def __init__(self, config: Path | None, directory: RunDirectory, reporter: Reporter) -> None:
        self._config = config
        self._directory = directory
        self._operators = EngineOperators(reporter)

    def prepare(self, spec: ProcessSpec) -> PreparedProcess:
        """Return a process, ready to start.

        Raises:
            CommandError: a setting is invalid, an engine does not serve its checkpoint, or a port
                is in use.
        """
        settings = _settings_of(spec)
        environment = dict(spec.settings)
        given = given_variables(self._config, spec.service)
        if spec.service == "router" and HISTORY_ENV not in given:
            environment[HISTORY_ENV] = str(self._directory.history)
        if isinstance(settings, WorkerSettings):
            _check_engine(settings)
            environment |= self._operators.settings_for(settings.engine, given)
        if settings.tls.cert is not None:
            raise CommandError(
                "`baton up` does not support TLS inside the cluster: unset BATON_TLS_CERT and "
                f"{spec.service}.tls.cert. docs/security.md describes how processes get "
                "certificates."
            )
        if isinstance(settings, FrontendSettings):
            _require_ports(settings)
        child = ServiceProcess(
            spec.service,
            environment,
            self._directory.logs / f"{spec.id}.log",
            settings.drain_seconds + settings.close_seconds + STOP_SLACK_SECONDS,
        )
        return PreparedProcess(spec, child, settings)


def _settings_of(spec: ProcessSpec) -> ProcessSettings:
    """Return the settings that a process will have, from this environment and its own.

    Raises:
        CommandError: a setting is invalid; the message names it and its allowed values.
    """
    settings_type = SERVICE_SETTINGS[spec.service]
    names = list(fields_of(settings_type))
    flags = {name.file_env if name.secret else name.env: name.flag for name in names}
    flags[CONFIG_ENV] = CONFIG_FLAG
    given = [f"{flags[name]}={value}" for name, value in spec.settings.items() if name in flags]
    try:
        return load(settings_type, given, spec.service)
    except StartupError as error:
        raise CommandError(str(error)) from error


def _check_engine(settings: WorkerSettings) -> None:
    """Reject a checkpoint that the workers' engine does not support.

    Raises:
        CommandError: it does not; the message names engines that do.
    """
    try:
        check_engine(settings.engine)
    except StartupError as error:
        raise CommandError(str(error)) from error


def _require_ports(settings: FrontendSettings) -> None:
    require_free(settings.http.host or HOST, settings.http.port, "--http-port", "BATON_HTTP_PORT")
    require_free(settings.grpc.host or HOST, settings.grpc.port, "--grpc-port", "BATON_GRPC_PORT")
