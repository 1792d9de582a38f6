"""Every file of ``conf/`` composes, resolves, and fits the object that it describes."""

import inspect

import pytest
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf

from experiments.run import CONF, build_task

FILES = sorted(path.relative_to(CONF).with_suffix("").as_posix() for path in CONF.glob("*/*.yaml"))
OBJECTS = [file for file in FILES if not file.startswith(("task/", "experiment/"))]
TASKS = sorted(path.stem for path in (CONF / "task").glob("*.yaml"))


@pytest.fixture
def composed_with(composed):
    """Compose a file with the first task that has its group."""

    def compose_file(file):
        override = file.replace("/", "=")
        if not file.startswith(("task/", "experiment/")):
            for task in TASKS:
                try:
                    return composed(f"task={task}", override)
                except ConfigCompositionException:
                    continue
        return composed(override)

    return compose_file


@pytest.mark.parametrize("file", FILES)
def test_conf_composes_to_a_task(composed_with, file):
    cfg = composed_with(file)

    assert not OmegaConf.missing_keys(cfg)
    assert callable(build_task(cfg))


@pytest.mark.parametrize("file", OBJECTS)
def test_conf_keys_are_arguments(composed_with, file):
    cfg = composed_with(file)[file.partition("/")[0]]

    instantiate(cfg)

    arguments = {key: None for key in cfg if not str(key).startswith("_")}
    inspect.signature(get_object(cfg._target_)).bind_partial(**arguments)


@pytest.mark.parametrize("file", FILES)
def test_conf_holds_no_absolute_path(file):
    values = OmegaConf.to_container(OmegaConf.load(CONF / f"{file}.yaml"))
    values.pop("defaults", None)

    assert not [value for value in values.values() if str(value).startswith("/")]


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_conf_models_take_channels(composed, name):
    model = instantiate(composed(f"model={name}").model)(in_channels=5, out_channels=3)

    assert model.out_channels == 3
