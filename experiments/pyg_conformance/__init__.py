"""Run PyG's own tests with our stores and our sampler in place of PyG's."""
