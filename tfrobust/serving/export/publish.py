"""Publication: a version folder appears complete or not at all, once per run, however often the run is killed.

    version = claim(base, owner, run=...)  # before the report is sealed, so that it carries the number
    if not is_published(base, version, owner, run=...):
        publish(staged_directory, base, version, owner, run=...)

Everything that is not yet a version has a name that is no integer (`.claim-3`, `.tmp-...`); servers and `compare`
ignore it. One owner (a working folder) publishes from one process at a time. Any number of owners may publish at the
same time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator

from tfrobust.common.files import check_writable, fsync_directory, fsync_tree, read_bounded, write_atomically
from tfrobust.errors import InputError
from tfrobust.serving.export import probe

PUBLISHER_FILE = f"{probe.EXTRAS}/publication.json"
RECORD_NAME = "publication.json"
_CLAIM = ".claim-"
_WITHDRAWN = ".withdrawn-"
# Of file systems without hard links, such as FAT and several network file systems.
_NO_LINKS = (errno.ENOTSUP, errno.ENOSYS, errno.EPERM)


class VersionExists(InputError):
    """The requested version belongs to another run (exit code 2)."""


def claim(base, owner: str, version: int | None = None, *, run: str = "") -> int:
    """Claim a version number for one owner, or return the one it already has.

    Args:
        base: folder of the model, `exported/<name>`; created if missing, readable for a server of another user.
        owner: identity of the publisher: equal for the same working folder, different for any other.
        version: the requested number, at least 1; None takes the next one.
        run: identity of what is published (the run's hash). A version that this owner published for another run is
            finished: None then takes the next number.

    Returns:
        The version: published by this owner for this run before (`is_published`), or claimed for it now, or claimed by
        it before. With None, an earlier claim below the newest version is exchanged for the next number, so that the
        published version is the newest one if claim and publication are within `one_at_a_time`.

    Raises:
        VersionExists: `version` was published by another owner or for another run, or is claimed by another owner.
    """
    base = pathlib.Path(base)
    check_available(base, version, owner)
    _make(base)
    _remove_leftovers(base, owner)
    held = _held_claims(base, owner)
    published = [number for number in versions(base) if is_published(base, number, owner, run=run)]
    if published and version in (None, *published):
        taken, keep = version or published[-1], None
        # The process may have been killed right after the rename, before the sync.
        fsync_directory(base)
    else:
        taken = keep = _take(base, owner, version, held)
    for other in held:
        if other != keep:
            _release(base, other)
    return taken


def check_available(base, version: int | None, owner: str) -> None:
    """Raise if `claim` would refuse a version, so that a run fails before hours of training; claim nothing.

    The arguments are those of `claim`.

    Raises:
        VersionExists: `version` was published by another owner, or was withdrawn.
        InputError: `version` is below 1, or the folder cannot be created or written to.
    """
    if version is not None and version < 1:
        raise InputError(f"version is {version}; published versions are integers from 1 on.")
    base = pathlib.Path(base)
    check_writable(base, "--export_dir")
    if version in withdrawn(base):
        raise VersionExists(f"Version {version} of {base} was withdrawn; leave --version out for a new number.")
    if version in versions(base) and (_publisher(base, version) or {}).get("owner") != owner:
        raise VersionExists(f"Version {version} of {base} exists and holds another run; leave --version out.")


def give_back(base, version: int, owner: str) -> None:
    """Release a claimed version that will not be published; do nothing if this owner holds no claim on it.

    The arguments are those of `claim`.
    """
    if version in _held_claims(pathlib.Path(base), owner):
        _release(pathlib.Path(base), version)


@contextlib.contextmanager
def holding(base, version: int, owner: str) -> Iterator[None]:
    """Give a claim back if the block ends with an error or an interrupt before the version is published.

    The arguments are those of `claim`.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # the next run of this owner takes the claim up
            give_back(base, version, owner)
        raise


def publish(staged_directory, base, version: int, owner: str, *, run: str = "") -> pathlib.Path:
    """Copy a staged version directory next to the versions, complete it and rename it to its number.

    The copy gets `assets.extra/publication.json` (owner, run, version) and `assets.extra/SHA256SUMS`, is readable for a
    server of another user (0755, files 0644), and is synced to disk before it gets its name. After a kill at any point,
    the same call finishes the work or finds it done. The staged directory is not changed.

    Args:
        staged_directory: directory that `assets.assemble` wrote.
        base: folder of the model, `exported/<name>`.
        version: from `claim`.
        owner: as given to `claim`.
        run: as given to `claim`.

    Returns:
        `base/version`.

    Raises:
        VersionExists: that version belongs to another owner, or is not claimed by this owner.
    """
    base = pathlib.Path(base)
    final = base / str(version)
    if not is_published(base, version, owner, run=run):
        if os.path.lexists(final) or version not in _held_claims(base, owner):
            raise VersionExists(f"Version {version} of {base} is not claimed by this run; claim one first.")
        _remove_leftovers(base, owner)
        temporary = base / f"{_temporary_prefix(owner)}{version}"
        try:
            shutil.copytree(staged_directory, temporary)
            _complete(temporary, {"owner": owner, "run": run, "version": version})
        except BaseException:  # Ctrl-C, or a full disk
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        try:
            os.rename(temporary, final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            raise VersionExists(f"Version {version} of {base} was put there by something else meanwhile.") from error
    fsync_directory(base)
    _remove_leftovers(base, owner)
    if version in _held_claims(base, owner):
        _release(base, version)
    return final


def is_published(base, version: int, owner: str, *, run: str = "") -> bool:
    """Return True if this version exists and was published by this owner for this run."""
    return _publisher(base, version) == {"owner": owner, "run": run, "version": version}


@contextlib.contextmanager
def one_at_a_time(base) -> Iterator[None]:
    """Wait until no other process is in this block for the same model; the kernel ends the wait if that is killed.

    Args:
        base: folder of the model, created if missing.
    """
    _make(pathlib.Path(base))
    descriptor = os.open(base, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def versions(base) -> list[int]:
    """Return the published versions of a model, ascending; empty if the folder is missing."""
    return sorted(number for number, path in _numbered(base).items() if path.is_dir())


def withdraw(base, version: int) -> pathlib.Path:
    """Rename a version so that no server finds it, and return its new path; `restore` takes that back.

    Raises:
        InputError: there is no such version.
    """
    return _renamed(pathlib.Path(base), str(version), f"{_WITHDRAWN}{version}", f"no version {version}")


def restore(base, version: int) -> pathlib.Path:
    """Give a withdrawn version its number back, and return its path.

    Raises:
        InputError: there is no such withdrawn version.
    """
    return _renamed(pathlib.Path(base), f"{_WITHDRAWN}{version}", str(version), f"no withdrawn version {version}")


def withdrawn(base) -> dict[int, str]:
    """Return the withdrawn versions of a model, each with the run that it was published for."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = {name: name.removeprefix(_WITHDRAWN) for name in os.listdir(base) if name.startswith(_WITHDRAWN)}
        numbered = {int(number): name for name, number in names.items() if number.isascii() and number.isdecimal()}
        return {number: (_publisher(base, numbered[number]) or {}).get("run", "") for number in sorted(numbered)}
    return {}


def write_sums(directory) -> None:
    """Write `assets.extra/SHA256SUMS` over all other files of a version directory.

    To check it: `cd <version directory> && sha256sum -c assets.extra/SHA256SUMS`.
    """
    path = pathlib.Path(directory, probe.SUMS_FILE)
    path.parent.mkdir(exist_ok=True)
    lines = [f"{digest}  {name}\n" for name, digest in probe.sums_of(directory).items()]
    write_atomically(path, "".join(lines))


def write_record(workdir, record: dict) -> None:
    """Write `publication.json`, the record of what a working folder published, atomically."""
    write_atomically(pathlib.Path(workdir, RECORD_NAME), json.dumps(record, indent=2, sort_keys=True) + "\n")


def _make(base: pathlib.Path) -> None:
    """Create the folder of a model and its missing parents with 0755, whatever the umask is."""
    missing = [folder for folder in (base, *base.parents) if not folder.exists()]
    base.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        os.chmod(folder, 0o755)


def _take(base: pathlib.Path, owner: str, version: int | None, held: list[int]) -> int:
    """Claim exclusively the requested version, or else a held one above all versions, or else the next free number."""
    newest = max(versions(base), default=0)
    for candidate in [version] if version is not None else [number for number in held if number > newest]:
        if candidate in held and candidate not in _numbered(base):
            return candidate
    while True:
        number = max([*_numbered(base), *withdrawn(base), *_claims(base), 0]) + 1 if version is None else version
        if _create_claim(base, owner, number):
            # Checked only after the claim: before it, another owner could still have published the version.
            if number not in _numbered(base):
                return number
            _release(base, number)
        if version is not None:
            if version in _numbered(base):
                raise VersionExists(f"Version {version} of {base} exists and holds another run; leave --version out.")
            raise VersionExists(
                f"Version {version} of {base} is claimed by another run; "
                f"if that run is gone, remove {_CLAIM}{version} there."
            )


def _numbered(base) -> dict[int, pathlib.Path]:
    """Return the entries of a folder whose names are numbers, also files; empty if the folder is missing."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        named = [path for path in pathlib.Path(base).iterdir() if path.name.isascii() and path.name.isdecimal()]
        return {int(path.name): path for path in named}
    return {}


def _create_claim(base: pathlib.Path, owner: str, version: int) -> bool:
    # Written to a temporary file, then linked: a kill leaves no claim without an owner, and linking never replaces.
    temporary, claim = base / f"{_temporary_prefix(owner)}claim", base / f"{_CLAIM}{version}"
    write_atomically(temporary, owner)
    try:
        os.link(temporary, claim)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _create_exclusively(claim, owner)
    finally:
        temporary.unlink()
    fsync_directory(base)
    return True


def _create_exclusively(claim: pathlib.Path, owner: str) -> bool:
    # A kill before the text is written leaves a claim without an owner, whose number is then never published.
    try:
        with open(claim, "x", encoding="utf-8") as file:
            file.write(owner)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    fsync_directory(claim.parent)
    return True


def _claims(base: pathlib.Path) -> list[int]:
    suffixes = [name.removeprefix(_CLAIM) for name in os.listdir(base) if name.startswith(_CLAIM)]
    return sorted(int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdecimal())


def _held_claims(base: pathlib.Path, owner: str) -> list[int]:
    held = []
    for version in _claims(base):
        with contextlib.suppress(FileNotFoundError):
            if (base / f"{_CLAIM}{version}").read_text(encoding="utf-8", errors="replace") == owner:
                held.append(version)
    return held


def _release(base: pathlib.Path, version: int) -> None:
    (base / f"{_CLAIM}{version}").unlink(missing_ok=True)
    fsync_directory(base)


def _renamed(base: pathlib.Path, before: str, after: str, fault: str) -> pathlib.Path:
    try:
        os.rename(base / before, base / after)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{base} has {fault}; its versions are {versions(base) or 'none'}.") from None
    fsync_directory(base)
    return base / after


def _publisher(base, version: int | str) -> dict | None:
    return _read_json(pathlib.Path(base, str(version), PUBLISHER_FILE))


def _read_json(path: pathlib.Path) -> dict | None:
    try:
        value = json.loads(read_bounded(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _complete(directory: pathlib.Path, publisher: dict) -> None:
    (directory / probe.EXTRAS).mkdir(exist_ok=True)
    write_atomically(directory / PUBLISHER_FILE, json.dumps(publisher, indent=2, sort_keys=True) + "\n")
    write_sums(directory)
    for folder, _, names in os.walk(directory):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)
    fsync_tree(directory)


def _temporary_prefix(owner: str) -> str:
    return f".tmp-{hashlib.sha256(owner.encode()).hexdigest()[:16]}-"


def _remove_leftovers(base: pathlib.Path, owner: str) -> None:
    for path in base.glob(f"*{_temporary_prefix(owner)}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
