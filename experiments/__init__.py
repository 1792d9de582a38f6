"""Measurements and training runs on top of pyg_direct, one module each, started by Hydra."""
