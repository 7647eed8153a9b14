"""`baton certs`: certificates for clusters without a certificate service."""

from rich.console import Console

from baton.cli.admin.certs.directory import ETCD, CertificateDirectory
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import CertsOptions, endpoints
from baton.rpc.tls.identity import ROLES

_ISSUED = """\
Mount each role's directory into the processes of that role. To create or replace the secrets:

{secrets}

  BATON_TLS_CERT=/etc/baton/tls/tls.crt
  BATON_TLS_KEY=/etc/baton/tls/tls.key
  BATON_TLS_CA=/etc/baton/tls/ca.crt

Running processes reload changed files. Keep ca.key here and do not distribute it."""
_ADDED = """\
Every role now trusts {count} authorities; the certificates are still signed by an older one.
Distribute the directories again and wait until all processes have reloaded them
(baton_tls_reloads_total). Then create new certificates and distribute them:

  baton certs {directory}

After all processes have reloaded those, remove the old authorities:

  baton certs {directory} --drop-old-cas"""
_DROPPED = "Every role now trusts one authority. Distribute the directories again."


def certs(options: CertsOptions, console: Console) -> None:
    """Create files, or perform a step of replacing the authority, and print what to do next.

    Raises:
        CommandError: the directory cannot be written or contains other files, or there is no
            authority to replace.
    """
    directory = CertificateDirectory(options.directory)
    if options.new_ca and options.drop_old_cas:
        raise CommandError("--new-ca and --drop-old-cas are separate steps: set only one of them.")
    if options.drop_old_cas and not directory.exists:
        raise CommandError(f"{options.directory} has no authority: create one with `baton certs`.")
    try:
        done = _run(directory, options)
        count = len(directory.authorities())
    except OSError as error:
        where = error.filename or options.directory
        raise CommandError(f"{where} cannot be read or written: {error.strerror}.") from error
    except ValueError as error:
        raise CommandError(
            f"The authority in {options.directory} cannot be used: {error}."
        ) from error
    secrets = "\n".join(
        f"  kubectl create secret generic {name}-tls --from-file={options.directory / name} "
        "--dry-run=client -o yaml | kubectl apply -f -"
        for name in (*sorted(ROLES), ETCD)
    )
    text = done.format(secrets=secrets, count=count, directory=options.directory)
    console.print(text, highlight=False, markup=False)


def _run(directory: CertificateDirectory, options: CertsOptions) -> str:
    """Return the message to print afterwards."""
    if options.drop_old_cas:
        directory.drop_old_authorities()
        return _DROPPED
    if options.new_ca and directory.exists:
        directory.add_authority()
        return _ADDED
    if not directory.exists:
        directory.add_authority()
    directory.issue(options.trust_domain, options.days, endpoints(options.etcd_hosts))
    return _ISSUED
