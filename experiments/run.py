"""Compose ``conf/``, run the task that it describes, show and keep the result.

``python -m experiments.run [task=...] [dataset=...] [experiment=...] [option=value ...]``

The composed configuration is one object: ``_target_`` names the task's ``run``, all other keys are
its arguments. A new task is a module with ``run(**arguments) -> list[dict]`` and a file in
``conf/task``; nothing here changes.
"""

import inspect
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from experiments.environment import describe_environment
from experiments.table import Rows, render_table, write_table

CONF = Path(__file__).resolve().parents[1] / "conf"


def build_task(cfg: DictConfig) -> Callable[[], Rows]:
    """Return the task of a composed configuration with its arguments bound, not yet run.

    Parameters
    ----------
    cfg : DictConfig
        ``_target_`` and the arguments of a task.

    Raises
    ------
    ValueError
        If there is an option that the task does not have, or one is missing.
    """
    task = instantiate(cfg, _partial_=True, _convert_="all")
    signature = inspect.signature(task.func)
    try:
        signature.bind(**task.keywords)
    except TypeError as error:
        raise ValueError(
            f"{cfg._target_}: {error}; it has {sorted(signature.parameters)}"
        ) from None
    return task  # type: ignore[no-any-return]


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def main(cfg: DictConfig) -> None:
    """Run one job of Hydra's; an error that the user can mend ends it in one line."""
    # Hydra lets every logger speak; Numba's tells of each kernel that it unloads.
    logging.getLogger("numba").setLevel(logging.WARNING)
    try:
        run_job(cfg, Path(HydraConfig.get().runtime.output_dir))
    except (ValueError, ImportError, FileNotFoundError, InstantiationException) as error:
        if os.environ.get("HYDRA_FULL_ERROR", "0") == "1":
            raise
        sys.exit(f"error: {error}\n(HYDRA_FULL_ERROR=1 shows the traceback)")


def run_job(cfg: DictConfig, folder: Path) -> Rows:
    """Run a task; print its table, and write it beside the resolved configuration.

    Parameters
    ----------
    cfg : DictConfig
        ``_target_`` and the arguments of a task.
    folder : Path
        Gets ``resolved.yaml`` before the run and ``result.csv`` after it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(cfg, folder / "resolved.yaml", resolve=True)
    rows = build_task(cfg)()
    if os.environ.get("RANK", "0") != "0":
        # Under torchrun every rank has the same rows: the first one writes them.
        return rows
    write_table(folder / "result.csv", rows, describe_environment(_command()))
    print(f"{render_table(rows)}\n\nwritten to {folder}")
    return rows


def _command() -> str:
    overrides: Any = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return " ".join(["python -m experiments.run", *overrides])


if __name__ == "__main__":
    main()
