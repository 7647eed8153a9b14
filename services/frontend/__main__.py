"""`baton serve frontend`."""

from baton.process.lifecycle import main
from baton.settings import FrontendSettings
from services.frontend.app import compose

if __name__ == "__main__":
    main(FrontendSettings, compose, "frontend")
