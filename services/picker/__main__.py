"""`baton serve picker`."""

from baton.process.lifecycle import main
from baton.settings import PickerSettings
from services.picker.app import compose

if __name__ == "__main__":
    main(PickerSettings, compose, "picker")
