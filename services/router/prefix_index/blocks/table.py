"""Choose a table of blocks."""

from baton.compiled.choice import CompiledChoice, choose
from services.router.prefix_index.blocks.build import library
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.native_table import NativeTable

BlockTable = DictTable | NativeTable


def choose_table() -> CompiledChoice[BlockTable]:
    """Return an empty table: the compiled one if it was built for this machine, or a dict."""
    return choose(library(), NativeTable, DictTable)
