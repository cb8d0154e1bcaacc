"""What can go wrong while a step is looked at.

ValueError
└── TraceError            the step cannot be traced: where, and what to do about it
    └── NothingFits       no size of the batch or sequence fits into the memory
"""

from __future__ import annotations


class TraceError(ValueError):
    """A step that cannot be traced. The message names module, source line and remedy.

    Attributes:
        problem: what is wrong.
        module: path of the module that was running, "" outside every module.
        source: source line of the user's code, where known.
        remedy: what to do about it.
    """

    def __init__(self, problem: str, *, module: str = "", source: str = "", remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        self.module = self.source = ""
        super().__init__()
        self.placed(module=module, source=source)

    def placed(self, *, module: str, source: str) -> None:
        """Say where it was."""
        self.module, self.source = module, source
        place = " ".join(
            part for part in (f"in module `{module}`" if module else "", f"at {source}" if source else "") if part
        )
        self.args = (". ".join(part for part in (f"{self.problem} {place}".rstrip(), self.remedy) if part),)


class NothingFits(TraceError):
    """Not even the smallest size fits; the message says what that takes.

    Attributes:
        least_bytes: peak of the smallest size.
    """

    def __init__(self, problem: str, *, least_bytes: int, remedy: str = "") -> None:
        super().__init__(problem, remedy=remedy)
        self.least_bytes = least_bytes
