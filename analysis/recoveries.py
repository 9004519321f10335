"""What rows of the recoveries between swap and recompute say, as numbers: no drawing, and nothing is scaled.

Each function takes a frame of `analysis.load.load`, CPU rows included, and returns one result a machine, model and
whatever else differs. Intervals are those of `analysis.intervals`; a round and its baseline are resampled together.
"""

from analysis.recoveries_again import Kept, Preemptions, Repeated, Resumed, kept, preemptions, resume
from analysis.recoveries_company import FREE, Batching, Company, Interference, Joined, batching, interference
from analysis.recoveries_hybrid import CURVES, PARTS, Hybrid, Predicted, Split, hybrid
from analysis.recoveries_ridge import TURNED, Ridge, RidgePoint, ridge
from analysis.recovery_rows import Reached, Subject, Way

__all__ = [
    "CURVES",
    "FREE",
    "PARTS",
    "TURNED",
    "Batching",
    "Company",
    "Hybrid",
    "Interference",
    "Joined",
    "Kept",
    "Predicted",
    "Preemptions",
    "Reached",
    "Repeated",
    "Resumed",
    "Ridge",
    "RidgePoint",
    "Split",
    "Subject",
    "Way",
    "batching",
    "hybrid",
    "interference",
    "kept",
    "preemptions",
    "resume",
    "ridge",
]
