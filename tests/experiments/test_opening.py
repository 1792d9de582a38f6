from experiments import opening


def test_run_opens_what_it_saved(device, tmp_path, capsys):
    rows = opening.run(
        num_nodes=2000,
        num_edges=20_000,
        quadrants=[0.57, 0.19, 0.19, 0.05],
        num_features=8,
        num_neighbors=[5, 3],
        batch_size=32,
        repeats=2,
        folder=str(tmp_path),
        device=str(device),
    )

    assert [row["opened"] for row in rows] == [1, 2]
    assert all(0 < row["open_s"] < row["first_batch_s"] for row in rows)
    assert capsys.readouterr().out.count("first batch after") == 2
    assert not [*tmp_path.iterdir()]
