"""`baton serve kvstore`."""

from baton.process.lifecycle import main
from baton.settings import KvStoreSettings
from services.kvstore.app import compose

if __name__ == "__main__":
    main(KvStoreSettings, compose, "kvstore")
