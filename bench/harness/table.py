"""Tables on standard output: a header first, then a line per measurement as it is made."""


class Table:
    """Columns of fixed widths, each with its own format."""

    def __init__(self, *columns: tuple[str, str]) -> None:
        """Print the header.

        Args:
            columns: (name, format specification such as `<18` or `9.2f`).
        """
        self._formats = [form for _, form in columns]
        header = []
        for name, form in columns:
            align = "<" if form.startswith("<") else ">"
            width = form.lstrip("<>").split(".")[0].rstrip("df,%")
            header.append(f"{name:{align}{max(len(name), int(width))}}")
        self._widths = [len(name) for name in header]
        print("  ".join(header), flush=True)

    def row(self, *values: object) -> None:
        """Print a line; a text in place of a number is printed as it is."""
        cells = []
        for value, form, width in zip(values, self._formats, self._widths, strict=True):
            left = form.startswith("<")
            text = value if isinstance(value, str) else format(value, form)
            cells.append(f"{text:{'<' if left else '>'}{width}}")
        print("  ".join(cells), flush=True)
