"""What CUDA says when it refuses to map host memory."""

from typing import Any

_LIMITS = (
    "limits to look at: free host memory, locked memory (`ulimit -l`), the memory limit of the "
    "container's cgroup, and for shared memory the size of /dev/shm"
)


class HostMappingError(RuntimeError):
    """Host memory could not be mapped for the GPU. Nothing was registered."""

    @classmethod
    def from_code(cls, action: str, address: int, num_bytes: int, code: Any) -> "HostMappingError":
        """Describe a CUDA return code.

        Parameters
        ----------
        action : str
            What was tried, as in "register".
        address, num_bytes : int
            The range in host memory.
        code : cuda.bindings.driver.CUresult
            What CUDA answered.
        """
        return cls(
            f"CUDA refused to {action} {num_bytes} bytes of host memory at {address:#x}: "
            f"{code.name} ({int(code)}); {_LIMITS}"
        )
