"""Pictures of values, by Matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import SecsvError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._result import Result

GAIN, LOSS = "#2b6cb0", "#c05621"


def axes(ax: Axes | None) -> Axes:
    """The axes to draw on; says what to install where Matplotlib is missing."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise SecsvError("expected Matplotlib to be installed, found none: pip install secsv[plot]") from error
    return pyplot.subplots()[1]


def bar(result: Result, ax: Axes | None) -> Axes:
    """A bar for each silo, the largest value above."""
    ax = axes(ax)
    ranked = result.sort()[::-1]
    names = [result.labels[silo] for silo, _ in ranked]
    values = [100 * value for _, value in ranked]
    errors = None if result.stderr is None else [100 * result.stderr[silo] for silo, _ in ranked]
    ax.barh(names, values, xerr=errors, color=[GAIN if value >= 0 else LOSS for value in values])
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_xlabel("contribution in points")
    ax.set_title(result.name)
    return ax


def rounds(result: Result, ax: Axes | None) -> Axes:
    """A line for each silo: its value, added up round by round."""
    ax = axes(ax)
    numbers = sorted(result.rounds)
    for silo in result.silos:
        total, line = 0.0, []
        for number in numbers:
            total += 100 * result.rounds[number][silo]
            line.append(total)
        ax.plot(numbers, line, marker="o", label=result.labels[silo])
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_xlabel("round")
    ax.set_ylabel("contribution so far, in points")
    ax.legend()
    return ax


def heatmap(result: Result, ax: Axes | None) -> Axes:
    """Rounds by silos, in colours around 0."""
    ax = axes(ax)
    numbers = sorted(result.rounds)
    grid = [[100 * result.rounds[number][silo] for number in numbers] for silo in result.silos]
    most = max((abs(value) for row in grid for value in row), default=0.0) or 1.0
    image = ax.imshow(grid, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    ax.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    ax.set_yticks(range(len(result.silos)), [result.labels[silo] for silo in result.silos])
    ax.set_xlabel("round")
    ax.figure.colorbar(image, ax=ax, label="points")
    return ax


def waterfall(result: Result, ax: Axes | None) -> Axes:
    """How the values add up to what all rounds gained together."""
    ax = axes(ax)
    begun, names = 0.0, []
    for place, (silo, value) in enumerate(result.sort()):
        ax.bar(place, 100 * value, bottom=100 * begun, color=GAIN if value >= 0 else LOSS)
        begun += value
        names.append(result.labels[silo])
    ax.bar(len(names), 100 * begun, color="#4a5568")
    ax.set_xticks(range(len(names) + 1), [*names, "all"], rotation=30, ha="right")
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set_ylabel("points")
    return ax


KINDS: dict[str, Callable[[Any, Any], Any]] = {"bar": bar, "rounds": rounds, "heatmap": heatmap, "waterfall": waterfall}
