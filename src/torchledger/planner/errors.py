"""What can be wrong with a question to the planner.

ValueError
└── PlanError           a quantity that cannot be
    ├── Underdetermined too many quantities are open
    ├── Contradiction   the given quantities disagree
    ├── NothingFits     what is given is not enough for one parameter, or for one token
    └── LayoutRefused   a layout that cannot be, with every rule that it breaks
"""

from __future__ import annotations


class PlanError(ValueError):
    """A question that cannot be answered: the message says which quantity, why, and what would help."""


class Underdetermined(PlanError):
    """Too many quantities are open; the message names them."""


class Contradiction(PlanError):
    """All quantities are given and they disagree; the message shows both sides."""


class NothingFits(PlanError):
    """What is given is not enough for one parameter, or for one token; the message says what to give more of."""


class LayoutRefused(PlanError):
    """A layout that cannot be; the message has every rule that it breaks, each with what would keep it."""
