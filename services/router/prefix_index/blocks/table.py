"""Choose a table of blocks."""

from services.router.prefix_index.blocks.build import library_path
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.native_table import NativeTable

BlockTable = DictTable | NativeTable


def new_table() -> BlockTable:
    """Return an empty table: the compiled one where it was built for this machine.

    Raises:
        OSError: the library is there and cannot be loaded.
    """
    library = library_path()
    return NativeTable(library) if library.exists() else DictTable()
