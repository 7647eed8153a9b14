"""`baton serve prefill`."""

from baton.process.lifecycle import main
from baton.settings import PrefillSettings
from baton.worker.app import compose

if __name__ == "__main__":
    main(PrefillSettings, compose, "prefill")
