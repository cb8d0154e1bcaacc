"""An HTML document that stands alone: nothing fetched, light and dark, its data and its charts inside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib import resources

from torchledger.view.chart import Chart
from torchledger.view.markup import fragment
from torchledger.view.screen import Screen

_SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js", "static/page.js")


def document(title: str, body: str, charts: Mapping[str, Chart], *, data_id: str, data_json: str) -> str:
    """The whole document.

    Args:
        title: of the window; ` · torchledger` is added.
        body: HTML; texts in it are escaped already.
        charts: by the id of the element that each is drawn in. Without any there is no script.
        data_id: id of the element that holds the data.
        data_json: what the document was made from, as JSON, for whoever reads it back.
    """
    scripts = [_script(name) for name in _SCRIPTS] if charts else []
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · torchledger</title>
<style>{_resource("static/page.css")}</style>
</head>
<body>
{body}
<script type="application/json" id="{data_id}">{_inert(data_json)}</script>
<script type="application/json" id="torchledger-charts">{_inert(json.dumps(charts, allow_nan=False))}</script>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def section(title: str, screen: Screen) -> str:
    """Blocks under a heading."""
    return f"<h2>{escape(title)}</h2>\n{fragment(screen)}"


def folded(title: str, screen: Screen) -> str:
    """Blocks that are shown when their title is clicked."""
    return f"<details><summary>{escape(title)}</summary>\n{fragment(screen)}</details>"


def chart_section(title: str, charts: Mapping[str, Chart]) -> str:
    """The places of the charts under a heading; nothing where there are none."""
    if not charts:
        return ""
    drawn = "".join(f'<div class="chart" id="{name}"></div>' for name in charts)
    noscript = "<noscript><p>The charts need JavaScript; every number of them is in the tables.</p></noscript>"
    return f'<h2>{escape(title)}</h2>{noscript}<div class="charts">{drawn}</div>'


def _resource(name: str) -> str:
    return resources.files("torchledger.view").joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """A script without the address of its source map, which a browser's tools would fetch."""
    script = re.sub(r"\n//# sourceMappingURL=\S*\s*$", "\n", _resource(name))
    assert "</script" not in script.lower(), f"{name} would end its own element"
    return script


def _policy(scripts: list[str]) -> str:
    """A content security policy that lets exactly these scripts run and nothing be fetched."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _inert(text: str) -> str:
    """JSON that no HTML parser can leave: `<`, `>` and `&` as escapes, which JSON reads back as themselves."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
