"""See the batches of a Ray Serve application: `batch` in the place of `serve.batch`, and `batchscope --url` beside it.

The names of `__all__`, and the module `serve`, are the public interface, which follows https://semver.org.
"""

from importlib.metadata import version

try:
    from service.probe.connection import urls
    from service.probe.decorator import batch, watch
    from service.workloads.workload import Workload
except ModuleNotFoundError as error:
    if error.name != "service.probe":
        raise
    import service

    place = getattr(service, "__path__", [service.__file__])[0]
    raise ImportError(
        f"Batchscope has a package named `service`, and so has this application, in {place}: rename that one."
    ) from error

__all__ = ["Workload", "__version__", "batch", "urls", "watch"]

__version__ = version("batchscope")
