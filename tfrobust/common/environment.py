"""Description of the environment in one line, for bug reports."""

from __future__ import annotations

import collections
import importlib.metadata
import os
import pathlib
import platform

PACKAGES = ("tfrobust", "keras", "tensorflow", "numpy")
# Features that TensorFlow's CPU kernels depend on.
_CPU_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16")


def versions() -> dict[str, str]:
    """Return the version of each of `PACKAGES`; "not installed" for a checkout that is not installed."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            installed[package] = "not installed"
    return installed


def line() -> str:
    """Return versions, platform, processor and devices; no path, and no name of a machine or person."""
    parts = [f"{package} {version}" for package, version in versions().items()]
    library = " ".join(platform.libc_ver()).strip()
    parts += [f"python {platform.python_version()}", " ".join([platform.system(), platform.machine(), library]).strip()]
    flags = cpu_flags(pathlib.Path("/proc/cpuinfo"))
    parts.append(f"{os.cpu_count()} processors ({' '.join(flags) or 'flags not known'})")
    return ", ".join([*parts, f"devices: {_devices()}"])


def cpu_flags(path: pathlib.Path) -> list[str]:
    """Return the processor's vector instructions among those that matter here; [] where they are unknown.

    Args:
        path: a file such as Linux's `/proc/cpuinfo`.
    """
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    named = next((line for line in lines if line.partition(":")[0].strip() in ("flags", "Features")), "")
    flags = set(named.partition(":")[2].split())
    return [flag for flag in _CPU_FLAGS if flag in flags]


def _devices() -> str:
    """Return the devices that TensorFlow sees, such as "1 CPU, 2 GPU (NVIDIA A100)", or why it fails."""
    try:
        import tensorflow as tf

        devices = tf.config.list_physical_devices()
    except Exception as error:  # this line must also serve bug reports about the failure itself
        return f"not known, tensorflow fails with {type(error).__name__}"
    counts = collections.Counter(device.device_type for device in devices)
    names = {device.device_type: _name(tf, device) for device in devices}
    return ", ".join(f"{count} {kind}" + (f" ({names[kind]})" if names[kind] else "") for kind, count in counts.items())


def _name(tf, device) -> str:
    if device.device_type != "GPU":
        return ""
    return tf.config.experimental.get_device_details(device).get("device_name", "")
