"""`baton serve router`."""

from baton.process.lifecycle import main
from baton.settings import RouterSettings
from services.router.app import compose

if __name__ == "__main__":
    main(RouterSettings, compose, "router")
