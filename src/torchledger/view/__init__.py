"""Every way to look: a screen is blocks of texts, drawn for a terminal, a pipe, a notebook or a page. No torch.

    screen.py    the blocks: Table, Bars, Facts, Lines
    style.py     what the place can show; ASCII stand-ins
    terminal.py  blocks as plain text      pretty.py  blocks by rich      markup.py  blocks as HTML
    layout.py    tables as lines, made to fit a width
    table.py     ledgers                   memory.py  memory by part      closing.py predicted against measured
    plan.py      the napkin                amount.py  values by the unit in their name
    chart.py     Vega-Lite dicts           page.py    the report of a run record.py  its data, out and in
    notebook.py  how ledgers print and show themselves

Nothing here prints: every function returns data or text.
"""
