"""Names the system library that Qt lacks, and the Debian package that has it, before Qt dies of it.

Qt's own message blames xcb-cursor whichever library of the xcb platform is missing. Nothing here imports Qt: without
some of these libraries `import PySide6.QtGui` itself fails.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Final

# What the shared objects of PySide6-Essentials 6.11 ask of the system beyond a C library.
COMMON: Final[Mapping[str, str]] = {
    "libglib-2.0.so.0": "libglib2.0-0",
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
}
XCB: Final[Mapping[str, str]] = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
WAYLAND: Final[Mapping[str, str]] = {
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
}


def is_loadable(library: str) -> bool:
    """Whether the dynamic linker finds `library` and all that it needs itself."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def missing(wanted: Mapping[str, str], can_load: Callable[[str], bool] = is_loadable) -> dict[str, str]:
    """The libraries of `wanted` that cannot be loaded, and their packages."""
    return {library: package for library, package in wanted.items() if not can_load(library)}


def complaint(environ: Mapping[str, str], can_load: Callable[[str], bool] = is_loadable) -> str | None:
    """What keeps Qt from opening a window here and how to mend it, or ``None`` where nothing does."""
    lacking = missing(COMMON, can_load)
    platform = environ.get("QT_QPA_PLATFORM", "").split(":")[0].split(";")[0]
    has_wayland = bool(environ.get("WAYLAND_DISPLAY"))
    if platform == "xcb" or (not platform and environ.get("DISPLAY") and not has_wayland):
        lacking |= missing(XCB, can_load)
    elif platform == "wayland":
        lacking |= missing(WAYLAND, can_load)
    elif not platform and has_wayland:
        if not environ.get("DISPLAY") or missing(XCB, can_load):
            lacking |= missing(WAYLAND, can_load)
    elif not platform:
        return (
            "There is no screen to open the window on: neither DISPLAY nor WAYLAND_DISPLAY is set.\n"
            "Start it in a desktop session, or with QT_QPA_PLATFORM=offscreen to run without a screen."
        )
    return _sentence(lacking) if lacking else None


def _sentence(lacking: Mapping[str, str]) -> str:
    libraries = "\n".join(f"  {library}  (Debian and Ubuntu package {package})" for library, package in lacking.items())
    return (
        f"Qt needs system libraries that are missing here:\n{libraries}\n"
        f"Install them with:\n  sudo apt install {' '.join(dict.fromkeys(lacking.values()))}"
    )


def exit_if_missing(environ: Mapping[str, str]) -> None:
    """End the program with exit code 1 and a sentence where Qt could not open its window."""
    if not sys.platform.startswith("linux"):
        return
    sentence = complaint(environ)
    if sentence is not None:
        print(f"batchscope: {sentence}", file=sys.stderr)
        raise SystemExit(1)
