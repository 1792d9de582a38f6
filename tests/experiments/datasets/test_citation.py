import pytest

from experiments.datasets import planetoid


def test_planetoid_rejects_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="expected one of Cora, CiteSeer, PubMed"):
        planetoid(root=tmp_path, name="cora")
