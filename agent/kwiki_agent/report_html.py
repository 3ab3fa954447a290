"""The report as one HTML file: plots inside, nothing loaded from anywhere, nothing in it runs.

A report quotes what others wrote (intents, compiler messages, claims). Raw HTML and links in it are
shown as text, and a policy in the page's head forbids scripts and requests in any case.
"""

from __future__ import annotations

import base64
import html
import re
from pathlib import Path

import markdown

from kwiki_agent.runs import write_text

FORBIDDEN = ("html", "entity", "link", "reference", "short_reference", "autolink", "automail",
             "image_reference", "short_image_ref")  # fmt: skip
MOST_PICTURE_BYTES = 500_000
"""A larger picture is only named: a report must open at once, whatever lies in the run's folder."""
PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]*)" ?/?>')

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --line: #d9dde3; --soft: #f5f7f9; --text: #1f2329; --page: #fff; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --line: #3a4048; --soft: #22272e; --text: #d7dce2; --page: #181b20; }}
}}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1.2rem; color: var(--text); background: var(--page);
  font: 16px/1.55 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; }}
h2 {{ font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); padding-bottom: .3rem; }}
code, pre {{ font: .88em ui-monospace, monospace; background: var(--soft); border-radius: 4px; }}
code {{ padding: .1em .3em; overflow-wrap: anywhere; }}
pre {{ padding: .8rem; overflow-x: auto; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }}
th, td:first-child {{ white-space: nowrap; }}
th {{ background: var(--soft); }}
img {{ max-width: 100%; background: #fff; border-radius: 6px; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_html(report: Path) -> Path:
    """Write the twin of a `report.md` beside it; returns its path."""
    text = report.read_text(encoding="utf-8")
    title = text.split("\n", 1)[0].removeprefix("# ")
    twin = report.with_suffix(".html")
    write_text(twin, PAGE.format(title=html.escape(title), body=_body(text, report.parent)))
    return twin


def _body(text: str, folder: Path) -> str:
    reader = markdown.Markdown(extensions=["tables", "fenced_code", "sane_lists"], output_format="html")
    reader.preprocessors.deregister("html_block")
    for name in FORBIDDEN:
        reader.inlinePatterns.deregister(name, strict=False)
    body = PICTURE.sub(lambda found: _picture(folder, *found.groups()), reader.convert(text))
    return body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def _picture(folder: Path, name: str, source: str) -> str:
    """A plot of the run's folder inside the page; anything else by its name alone."""
    path = (folder / source).resolve()
    if path.suffix != ".svg" or not path.is_relative_to(folder.resolve()) or not path.is_file():
        return name
    if path.stat().st_size > MOST_PICTURE_BYTES:
        return f"{name}: see <code>{source}</code>"
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{name}" src="data:image/svg+xml;base64,{data}">'
