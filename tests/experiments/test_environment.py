import torch

from experiments.environment import describe_environment


def test_describe_environment_tells_every_fact():
    facts = describe_environment("python -m experiments.run")

    assert all(isinstance(text, str) and text for text in facts.values())
    assert facts["torch"] == torch.__version__
    assert (facts["gpu"] == "none") == (not torch.cuda.is_available())
