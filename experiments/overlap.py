"""How much of the communication of a traced run is hidden behind products."""

from pyg_direct.fullbatch.staged_product import Span


def hidden_share(spans: list[Span]) -> float:
    """Return the share of the time with a broadcast under way in which a product ran as well.

    Parameters
    ----------
    spans : list of Span
        Of one rank.

    Returns
    -------
    float
        Between 0 and 1; 1.0 where nothing was broadcast.
    """
    broadcasts = _union(spans, "broadcast")
    products = _union(spans, "product")
    total = sum(stop - start for start, stop in broadcasts)
    if total == 0.0:
        return 1.0
    return sum(_common(span, other) for span in broadcasts for other in products) / total


def _union(spans: list[Span], kind: str) -> list[tuple[float, float]]:
    chosen = sorted((span.start_s, span.stop_s) for span in spans if span.kind == kind)
    merged: list[tuple[float, float]] = []
    for start, stop in chosen:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _common(span: tuple[float, float], other: tuple[float, float]) -> float:
    return max(0.0, min(span[1], other[1]) - max(span[0], other[0]))
