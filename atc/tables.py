"""Tables for people. The library that draws them takes longer to load than a command that prints lines should."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from tensor_types.errors import visible

_WORD, _TEXT = 12, 24
"""Longest cell of a column that is never broken (numbers, dtypes, states), and what other columns keep at least."""


class _Table(Table):
    """A table that a screen narrower than `least` characters gets in longer lines."""

    least = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return super().__rich_console__(console, options.update(max_width=max(options.max_width, self.least)))


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A plain table; number-like columns to the right. Only columns of long texts are ever broken."""
    rows = [[visible(cell) for cell in row] for row in rows]
    made = _Table(title=visible(title), title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(_number_like(r[i]) for r in rows)
        longest = max(map(len, (column, *(r[i] for r in rows))))
        short = longest <= _WORD
        made.least += min(longest, _TEXT) + 2
        made.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=short)
    for row in rows:
        made.add_row(*row)
    return made


def _number_like(text: str) -> bool:
    return not text or text == "-" or text[0].isdigit() or (text[0] in "-+" and len(text) > 1)


class Rich(Console):
    """A console that changes no text."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, width=None if is_terminal else 200)

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled, which goes on; rich would end the process, with exit code 1."""
        raise
