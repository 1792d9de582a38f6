from experiments import unified


def test_losses_are_the_same_with_one_line_more(device, capsys):
    rows = unified.run(
        num_nodes=2000,
        num_edges=20_000,
        quadrants=[0.57, 0.19, 0.19, 0.05],
        num_features=[8, 33],
        num_neighbors=[5, 3],
        batch_size=32,
        num_batches=5,
        lr=0.01,
        device=str(device),
    )

    assert [row["features"] for row in rows] == ["plain", "unified"] * 2
    assert all(row["loss_difference"] < 1e-4 for row in rows)
    assert all(row["transfer_ms"] > 0 for row in rows)
    assert capsys.readouterr().out.count("saved") == 4
