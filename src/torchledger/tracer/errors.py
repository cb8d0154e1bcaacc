"""What can go wrong while a step is looked at.

ValueError
└── TraceError            the step cannot be traced: where, and what to do about it
"""

from __future__ import annotations


class TraceError(ValueError):
    """A step that cannot be traced. The message names module, source line and remedy.

    Attributes:
        module: path of the module that was running, "" outside every module.
        source: source line of the user's code, where known.
        remedy: what to do about it.
    """

    def __init__(self, problem: str, *, module: str = "", source: str = "", remedy: str = "") -> None:
        self.module = module
        self.source = source
        self.remedy = remedy
        place = " ".join(
            part for part in (f"in module `{module}`" if module else "", f"at {source}" if source else "") if part
        )
        super().__init__(". ".join(part for part in (f"{problem} {place}".rstrip(), remedy) if part))
