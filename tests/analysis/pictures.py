"""What tests look for on a picture: overlaps, legend entries, lines by name."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def legend_of(figure: Figure) -> list[str]:
    """The entries of the shared legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines_of(figure: Figure, name: str) -> list[Line2D]:
    """Lines of that gid, over all panels."""
    return [line for ax in figure.axes for line in ax.lines if line.get_gid() == name]


def overlaps(figure: Figure) -> list[str]:
    """What lies over something else or beyond the edge: whole panels, the legend, tick labels of one axis."""
    figure.canvas.draw()
    boxes = {f"panel {i}": ax.get_tightbbox() for i, ax in enumerate(figure.axes) if ax.axison}
    boxes["legend"] = figure.legends[0].get_window_extent()
    found = [f"{name} beyond the edge" for name, box in boxes.items() if box is None or not _inside(box, figure.bbox)]
    named = [(name, box) for name, box in boxes.items() if box is not None]
    for index, (name, box) in enumerate(named):
        found += [f"{name} over {other}" for other, second in named[:index] if box.overlaps(second)]
    for index, ax in enumerate(figure.axes):
        for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
            found += [f"panel {index}: ticks {pair}" for pair in _touching([t for t in ticks if t.get_text()], ax.bbox)]
        found += [f"panel {index}: texts {pair}" for pair in _touching([t for t in ax.texts if t.get_text() != "CPU"])]
    return found


def _inside(box: Bbox, whole: Bbox) -> bool:
    return bool(box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1)


def _touching(texts: list[Text], shown: Bbox | None = None) -> list[str]:
    """Pairs of texts that overlap; of ticks only those within the axes."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    if shown is not None:
        near = Bbox.from_extents(shown.x0 - 60, shown.y0 - 60, shown.x1 + 60, shown.y1 + 60)
        boxes = [(name, box) for name, box in boxes if near.overlaps(box)]
    return [f"{a} / {b}" for i, (a, one) in enumerate(boxes) for b, two in boxes[:i] if one.overlaps(two)]
