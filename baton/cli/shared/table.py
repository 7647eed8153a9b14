"""Tables that fit the terminal: no value is truncated, no word is broken.

Rows are shown in columns if they fit. If not, each row starts a line with its first value, and the
others follow, each after its heading, on as many lines as needed. Output that is not a terminal
always has columns, one line per row.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.text import Text

GAP = 2
"""Spaces between columns, and before lines that continue a row."""

Cell = str | Text


@dataclass
class TextTable:
    """Rows of values with headings."""

    headings: Sequence[str]
    right: frozenset[str] = frozenset()
    """Headings of numeric columns."""
    note_heading: str = ""
    """Heading of the notes; without one they are secondary, and dim."""
    shared: frozenset[str] = frozenset()
    """Headings of columns that are shown once, above, if all rows agree and width is scarce."""
    rows: list[tuple[list[Text], str]] = field(default_factory=list)

    def add(self, *cells: Cell, note: str = "") -> None:
        """Add a row: a value per heading, and a note without a heading that may take more lines."""
        self.rows.append(([_text(cell) for cell in cells], note))

    @property
    def width(self) -> int:
        """Width in columns, without notes."""
        widths = self._widths()
        return sum(widths) + GAP * (len(widths) - 1)

    def lines(self, width: int | None) -> Iterator[Text]:
        """Yield the lines to print, without trailing spaces.

        Args:
            width: columns of the terminal; None: no limit.
        """
        widths = self._widths()
        if width is not None and self.width > width:
            common = self._common()
            if common:
                yield from _filled(self._pairs(self.rows[0][0], common), width, GAP, indent=0)
                yield from self._without(common).lines(width)
                return
            for cells, note in self.rows:
                yield from self._block(cells, note, width)
            return
        headings = self._line([Text(heading, style="dim") for heading in self.headings], widths)
        yield self._beside(headings, Text(self.note_heading, style="dim"))
        for cells, note in self.rows:
            line, words = self._line(cells, widths), self._words(note)
            if width is None or self.width + GAP + Text(note).cell_len <= width:
                yield self._beside(line, Text(" ").join(words))
            else:
                yield line
                yield from _filled(words, width)

    def _widths(self) -> list[int]:
        return [
            max([len(heading), *(cells[column].cell_len for cells, _ in self.rows)])
            for column, heading in enumerate(self.headings)
        ]

    def _beside(self, line: Text, note: Text) -> Text:
        """Return the line with the note after its columns."""
        if note.plain:
            line.pad_right(self.width + GAP - line.cell_len)
            line.append_text(note)
        return line

    def _words(self, note: str) -> list[Text]:
        return [Text(word, style="" if self.note_heading else "dim") for word in note.split()]

    def _line(self, cells: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text()
        for heading, cell, width in zip(self.headings, cells, widths, strict=True):
            spaces = " " * (width - cell.cell_len)
            line.append_text(
                Text.assemble(spaces, cell) if heading in self.right else cell + Text(spaces)
            )
            line.append(" " * GAP)
        line.rstrip()
        return line

    def _block(self, cells: Sequence[Text], note: str, width: int) -> Iterator[Text]:
        yield cells[0]
        yield from _filled(self._pairs(cells, self.headings[1:]), width, GAP)
        yield from _filled(self._words(note), width)

    def _pairs(self, cells: Sequence[Text], wanted: Collection[str]) -> list[Text]:
        return [
            Text.assemble((f"{heading} ", "dim"), cell)
            for heading, cell in zip(self.headings, cells, strict=True)
            if cell.plain and heading in wanted
        ]

    def _common(self) -> list[str]:
        """Return headings of shared columns in which all rows agree."""
        return [
            heading
            for column, heading in enumerate(self.headings)
            if heading in self.shared
            and len(self.rows) > 1
            and len({cells[column].plain for cells, _ in self.rows}) == 1
        ]

    def _without(self, left_out: Collection[str]) -> "TextTable":
        kept = [n for n, heading in enumerate(self.headings) if heading not in left_out]
        headings = [self.headings[n] for n in kept]
        table = TextTable(headings, self.right, self.note_heading, self.shared)
        table.rows = [([cells[n] for n in kept], note) for cells, note in self.rows]
        return table


def show(console: Console, table: TextTable) -> None:
    """Print a table: as wide as the terminal, or unlimited without one."""
    for line in table.lines(console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True, highlight=False)


def _filled(
    parts: Iterable[Text], width: int | None, gap: int = 1, indent: int = GAP
) -> Iterator[Text]:
    """Yield indented lines of parts, none of which is broken."""
    line = Text(" " * indent)
    empty = True
    for part in parts:
        space = 0 if empty else gap
        if not empty and width is not None and line.cell_len + space + part.cell_len > width:
            yield line
            line, space = Text(" " * indent), 0
        line.append(" " * space).append_text(part)
        empty = False
    if not empty:
        yield line


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)
