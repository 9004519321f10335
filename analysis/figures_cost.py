"""The figures of costs: crossover maps, copy rates, recompute, hardware generations. Drawn in modules of their own."""

from __future__ import annotations

from analysis.figures_generations import draw_generations
from analysis.figures_map import draw_crossover_map
from analysis.figures_rates import draw_rates
from analysis.figures_recompute import draw_recompute

__all__ = ["draw_crossover_map", "draw_generations", "draw_rates", "draw_recompute"]
