"""`baton certs`: certificates for those who have no service that issues them."""

from rich.console import Console

from baton.cli.admin.certs.directory import ETCD, CertificateDirectory
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import CertsOptions, endpoints
from baton.rpc.tls.identity import ROLES

_ISSUED = """\
Each process gets its role's folder as files; what replaces an older secret reaches them too:

{secrets}

  BATON_TLS_CERT=/etc/baton/tls/tls.crt
  BATON_TLS_KEY=/etc/baton/tls/tls.key
  BATON_TLS_CA=/etc/baton/tls/ca.crt

Processes that run take new files by themselves. ca.key stays here, and is nobody else's."""
_ADDED = """\
Every role trusts {count} authorities now; the certificates are still of an older one. Give out the
folders again, wait until all processes have taken them (baton_tls_reloads_total), then make new
certificates and give them out:

  baton certs {directory}

and, once those are everywhere too:

  baton certs {directory} --drop-old-cas"""
_DROPPED = "Every role trusts one authority now. Give out the folders again."


def certs(options: CertsOptions, console: Console) -> None:
    """Make files, or take a step of replacing the authority, and print what to do next.

    Raises:
        CommandError: the directory cannot be written or holds something else, or there is no
            authority to replace.
    """
    directory = CertificateDirectory(options.directory)
    if options.new_ca and options.drop_old_cas:
        raise CommandError("--new-ca and --drop-old-cas are steps of their own: give one of them.")
    if options.drop_old_cas and not directory.exists:
        raise CommandError(f"{options.directory} holds no authority: `baton certs` makes one.")
    try:
        done = _run(directory, options)
        count = len(directory.authorities())
    except OSError as error:
        where = error.filename or options.directory
        raise CommandError(f"{where} cannot be read or written: {error.strerror}.") from error
    except ValueError as error:
        raise CommandError(
            f"{options.directory} holds an authority that cannot be used: {error}."
        ) from error
    secrets = "\n".join(
        f"  kubectl create secret generic {name}-tls --from-file={options.directory / name} "
        "--dry-run=client -o yaml | kubectl apply -f -"
        for name in (*sorted(ROLES), ETCD)
    )
    text = done.format(secrets=secrets, count=count, directory=options.directory)
    console.print(text, highlight=False, markup=False)


def _run(directory: CertificateDirectory, options: CertsOptions) -> str:
    """Return what to say after it."""
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
