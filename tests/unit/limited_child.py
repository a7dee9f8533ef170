"""Run by a test in a child process: asks for more memory than a converting child may have."""

import resource

from service.engine.model.convert import MEMORY_BYTES, cpu_limit_s, limit_resources

if __name__ == "__main__":
    limit_resources(0)
    assert resource.getrlimit(resource.RLIMIT_CPU)[0] == int(cpu_limit_s(0))
    try:
        bytearray(MEMORY_BYTES + 1)
    except MemoryError:
        print("MemoryError")
