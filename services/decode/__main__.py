"""`baton serve decode`."""

from baton.process.lifecycle import main
from baton.settings import DecodeSettings
from baton.worker.app import compose

if __name__ == "__main__":
    main(DecodeSettings, compose, "decode")
