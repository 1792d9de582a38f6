"""Where the files of a job go."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig


def job_folder() -> Path | None:
    """Return the output folder of Hydra's job; None outside of one."""
    return Path(HydraConfig.get().runtime.output_dir) if HydraConfig.initialized() else None
