"""Write docs/audits-examples.md and its plots: every audit of our own trained model and of three transformers models.

The models that transformers builds are the configurations in docs/audited/, their weights as transformers draws them.
Ours is the run in runs/latest, or the one that is named. Plots need vl-convert-python (the extra `export`).

    python docs/generate_audits.py [RUN]
"""

from __future__ import annotations

import sys
from pathlib import Path

import vl_convert

from torchledger import auditor
from torchledger.cli.audit import AUDITS
from torchledger.cli.audited import subject_of
from torchledger.ledger import AuditRecord
from torchledger.view.audits import audit_screen, charts_of
from torchledger.view.style import Style
from torchledger.view.terminal import draw

DOCS = Path(__file__).parent
IMAGES = DOCS / "images"
WIDTH = 640  # of a plot; on a page it is as wide as the window
STYLE = Style(rich=False, color=False, unicode=True, width=118)
#: Heading, target, what it is.
TARGETS = (
    ("Our own model, trained", "runs/latest", "The model of `make run` after its last step, on its next batch."),
    ("A GPT-2 of 6 layers", "docs/audited/gpt2.json", "`GPT2LMHeadModel`, fresh, on tokens drawn at random."),
    ("A Llama of 8 layers", "docs/audited/llama.json", "`LlamaForCausalLM`, fresh, on tokens drawn at random."),
    ("A BERT of 6 layers", "docs/audited/bert.json", "`BertForMaskedLM`, fresh, on tokens drawn at random."),
)
#: Small enough for two cores: the audits' figures are shares and sizes, which hardly depend on it.
BATCH = {"batch_size": 2, "sequence_length": 64}
INTRODUCTION = """# Audits of four models

Written by `make audits`, on the machine at hand; another one has other seconds. How to read them and what they catch
is in [audits.md](audits.md). "Nothing found" is the answer a sound model gets. `--html` draws the same plots, and those
of single layers with them.
"""


def record(kind: str, target: str) -> AuditRecord:
    """One audit of one target."""
    found: AuditRecord = getattr(auditor, f"audit_{kind}")(subject_of(target, BATCH))
    return found


def plots(slug: str, found: AuditRecord) -> list[str]:
    """Its charts as SVG files, those of single layers left out, which take a megabyte; lines that show them."""
    lines = []
    for name, chart in charts_of(found).items():
        if name.startswith("layers-"):
            continue
        path = IMAGES / f"{slug}-{found.audit}-{name}.svg"
        wide = {**chart, "width": WIDTH} if chart.get("width") == "container" else chart
        path.write_text(vl_convert.vegalite_to_svg(wide, vl_version="6.1"), encoding="utf-8")
        lines += [f"![{found.audit} of {slug}: {name}](images/{path.name})", ""]
    return lines


def main(run: str) -> None:
    """Write the page."""
    IMAGES.mkdir(exist_ok=True)
    lines = [INTRODUCTION]
    for heading, target, what in TARGETS:
        place = run if target.startswith("runs/") else target
        slug = "ours" if place == run else Path(place).stem
        lines += [f"## {heading}", "", what, ""]
        for kind in AUDITS:
            found = record(kind, place)
            screen = draw(audit_screen(found), STYLE).rstrip()
            command = f"$ torchledger audit {kind} {target} --batch 2 --sequence 64"
            lines += [f"### {kind}", "", "```text", command, screen, "```", ""]
            lines += plots(slug, found)
    (DOCS / "audits-examples.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/latest")
