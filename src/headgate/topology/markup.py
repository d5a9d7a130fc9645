"""Pieces of pages that need nothing else: no script, no font, no address."""

from collections.abc import Iterable
from html import escape

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.25rem}h2{font-size:1.05rem;margin-top:2rem}.verdict{padding:.7rem 1rem;border-radius:6px;font-weight:600}
.critical{background:#fbdcdc}.warning{background:#fdf0cf}.note{background:#e6eefa}.healthy{background:#dff3e1}
.finding{margin:.6rem 0;padding:.5rem .8rem;border-radius:6px}.finding p{margin:.2rem 0}
ul{margin:.2rem 0 .2rem 1.2rem;padding:0;color:#555}
table{border-collapse:collapse;font-size:13px;margin:.5rem 0}
td,th{padding:2px 7px;border:1px solid #ddd;text-align:right}
th{background:#f4f4f4;font-weight:600}td.name,th.name{text-align:left;white-space:nowrap}
td.shared{outline:2px solid #b3261e}
.scroll{overflow-x:auto}.dim{color:#777}
"""

END = "</body></html>\n"


def opening(title: str, heading: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(heading)}</h1>"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        named = (f"<{tag}{' class=name' if n == 0 else ''}>{escape(cell)}</{tag}>" for n, cell in enumerate(cells))
        return f"<tr>{''.join(named)}</tr>"

    return f'<div class="scroll"><table>{line("th", head)}{"".join(line("td", row) for row in rows)}</table></div>'


def left_out(number: int, what: str) -> str:
    return f'<p class="dim">… and {number:,} {what} are not shown.</p>' if number > 0 else ""
