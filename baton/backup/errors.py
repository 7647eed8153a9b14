"""Why a backup cannot be made, read or restored."""


class BackupError(Exception):
    """A backup cannot be made, read or restored; the message is a sentence without a period."""


class PassphraseError(BackupError):
    """The passphrase does not open the backup."""
