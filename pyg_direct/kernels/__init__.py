"""Operations on arrays, each three times: NumPy reference, parallel CPU version, CUDA kernel."""
