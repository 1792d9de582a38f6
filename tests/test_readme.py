"""Whatever the README says is run."""

import re
from pathlib import Path

import pyg_direct

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_every_python_snippet_runs():
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {}

    assert len(snippets) >= 3
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)

    assert names["rows"].shape == (2, 16)
    batch = names["batch"]
    assert batch.x.cpu().equal(names["data"].x[batch.n_id.cpu()])


def test_second_command_is_what_ci_runs():
    commands = re.findall(r"```bash\n(python -m pip install.*?)\n```", README)
    train, test = commands

    assert test.replace("pip install", "pip install --quiet") in (ROOT / ".ci/run").read_text()
    assert train.endswith("python -m experiments.run")


def test_public_names_are_those_of_the_readme():
    named = set(re.findall(r"pyg_direct\.(\w+)", README))
    floors = {path.stem for path in (ROOT / "pyg_direct").iterdir()}

    assert set(pyg_direct.__all__) == named - floors - {"org"}


def test_every_option_of_the_table_is_in_conf():
    table = README[README.index("| option | values |") :].split("\n\n")[0]

    for group in ("dataset", "store", "model", "experiment"):
        row = next(line for line in table.splitlines() if line.startswith(f"| `{group}`"))
        offered = {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
        assert offered == set(re.findall(r"`(\w+)`", row)) - {group}
