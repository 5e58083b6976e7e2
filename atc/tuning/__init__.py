"""`atc convert --tune`: finds tilings for this machine by running kernels on the model's own sizes.

`candidates` says what to try, `timing` runs two kernels in turns, `search` spends the budget.
"""

from atc.tuning.search import Tuned, tune

__all__ = ["Tuned", "tune"]
