"""A profile as one page without other files: for each thread a flame picture, widths by time, the outermost function on top.

In the colours of a run's report, and without its templates: a client of a cluster has no packages but the base install's. Pure.
"""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final
from zlib import crc32

from rljob_operator.view.profile import MemberProfile, Stack

_WIDTH, _ROW = 1060, 18
_LEAST: Final = 0.001
"""Share of a thread's time below which a function is not drawn."""
_LETTER: Final = 6.3
_COLOURS: Final = ("#24618f", "#d1661b", "#2d8a5f", "#8a4fa3", "#b08a00", "#3a9db5", "#b5446e", "#7d858c")

_HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title} · profile</title>
<style>
:root {{ --paper: #fbfbf9; --card: #fff; --ink: #1c2127; --soft: #5c6670; --rule: #e3e5e6; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --paper: #15181b; --card: #1c2024; --ink: #e7eaec; --soft: #9ba5ad; --rule: #30363b; }}
}}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }}
main {{ max-width: 1120px; margin: 0 auto; padding: 44px 28px 72px; }}
h1 {{ font-size: 34px; margin: 0; overflow-wrap: anywhere; }} h2 {{ font-size: 20px; margin: 44px 0 6px; }}
p {{ color: var(--soft); margin: 0 0 10px; }}
figure {{ margin: 0 0 16px; padding: 14px 16px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; }}
figcaption {{ font-weight: 600; font-size: 14px; margin-bottom: 6px; }}
svg {{ display: block; width: 100%; height: auto; }}
svg text {{ font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #fff; pointer-events: none; }}
rect:hover {{ opacity: .75; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; }}
th {{ text-align: left; color: var(--soft); font-weight: 500; }}
td, th {{ padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; }}
{colours}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
"""


def page(title: str, profiles: Iterable[MemberProfile]) -> str:
    """The page. Every text is escaped."""
    colours = "\n".join(f".f{number} {{ fill: {colour}; }}" for number, colour in enumerate(_COLOURS))
    out = [_HEAD.format(title=escape(title), colours=colours)]
    for profile in profiles:
        out.append(f"<h2>{escape(profile.name)}</h2>\n" + "".join(f"<p>{escape(x)}</p>\n" for x in profile.summary()))
        rows = "".join(
            f"<tr><td>{own:.0%}</td><td>{whole:.0%}</td><td>{escape(thread)}</td><td>{escape(function)}</td></tr>\n"
            for function, thread, own, whole in profile.functions()
        )
        if rows:
            out.append(f"<table><tr><th>Self</th><th>Total</th><th>Thread</th><th>Function</th></tr>\n{rows}</table>\n")
        out += [
            f"<figure><figcaption>{escape(thread)}</figcaption>{flame(profile.stacks[thread])}</figure>\n"
            for thread in profile.busy
        ]
    return "".join([*out, "</main>\n</body>\n</html>\n"])


def flame(stacks: Mapping[Stack, int]) -> str:
    """An SVG of all stacks of a thread. The functions that every one of them has in common are left out but for the last."""
    kept, whole, first = list(stacks.items()), sum(stacks.values()), 0
    shortest = min(len(stack) for stack, _ in kept)
    while first + 1 < shortest and len({stack[first + 1] for stack, _ in kept}) == 1:
        first += 1
    drawn: list[str] = []
    level, depth = [(0.0, kept)], 0
    while level:
        below = []
        for left, part in level:
            children: dict[str, list[tuple[Stack, int]]] = {}
            for stack, count in part:
                if len(stack) > first + depth:
                    children.setdefault(stack[first + depth], []).append((stack, count))
            for function, inside in sorted(children.items()):
                share = sum(count for _, count in inside) / whole
                if share >= _LEAST:
                    drawn.append(_box(function, left, share, depth))
                    below.append((left, inside))
                left += share
        level, depth = below, depth + 1
    head = f'<svg viewBox="0 0 {_WIDTH} {depth * _ROW}" role="img" xmlns="http://www.w3.org/2000/svg">'
    return "".join([head, *drawn, "</svg>"])


def _box(function: str, left: float, share: float, depth: int) -> str:
    x, width, y = left * _WIDTH, share * _WIDTH, depth * _ROW
    colour = crc32(function.partition(" (")[2].encode()) % len(_COLOURS)  # one a file
    letters = int((width - 6) / _LETTER)
    text = function if len(function) <= letters else f"{function[: letters - 1]}…" if letters > 3 else ""
    label = f'<text x="{x + 3:.1f}" y="{y + 12.5:.1f}">{escape(text)}</text>' if text else ""
    return (
        f'<rect class="f{colour}" x="{x:.1f}" y="{y}" width="{max(0.3, width - 0.6):.1f}" height="{_ROW - 1}" rx="2">'
        f"<title>{escape(function)}: {share:.1%}</title></rect>{label}"
    )
