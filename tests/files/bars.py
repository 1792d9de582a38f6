"""The bars that a test makes."""

import tqdm


def record_bars(monkeypatch):
    """Return the list to which every bar of tqdm's is added from now on."""
    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            bars.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    return bars
