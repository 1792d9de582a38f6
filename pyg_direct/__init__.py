"""Train PyTorch Geometric models on graphs larger than GPU memory."""
