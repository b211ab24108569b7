"""Models on the Hugging Face Hub: upload of an export, and download of `hf://owner/name`.

Needs the package `huggingface_hub` (the extra `hub`), which also finds the token and the endpoint (`HF_TOKEN`,
`HF_ENDPOINT`).
"""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Collection, Mapping

from tfrobust.errors import Failure, InputError
from tfrobust.serving import hub_files

SCHEME = "hf://"
_NAME = re.compile(r"hf://(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?")
_FILES, _FOLDERS = ("saved_model.pb", "fingerprint.pb"), ("variables/", "assets/", "assets.extra/")


def upload(files: Mapping[str, pathlib.Path | bytes], repo: str, *, private: bool = False) -> str:
    """Upload files as one commit; create the repository if it does not exist.

    Args:
        files: path in the repository -> the file, or its content. Other files in their top folders, such as those of an
            earlier upload of the same version, are deleted; the rest of the repository is kept.
        repo: "owner/name".
        private: True to create a private repository, or to require that an existing one is private.

    Returns:
        The URL of the commit.

    Raises:
        InputError (a ValueError): huggingface_hub is not installed, the Hub refuses the name or the files, or the
            repository is public and should be private.
        Failure: the Hub cannot be reached, or does not permit the upload.
    """
    hub = _library()
    operations = [hub.CommitOperationAdd(name, content) for name, content in files.items()]
    folders = tuple({f"{name.split('/')[0]}/" for name in files if "/" in name})
    with _one_line(hub, repo):
        api = hub.HfApi()
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:  # the Hub ignores the wish for an existing repository
            raise InputError(f"{repo} exists and is public: make it private on the Hub, or leave --private out.")
        stale = [name for name in api.list_repo_files(repo) if name.startswith(folders) and name not in files]
        operations += map(hub.CommitOperationDelete, stale)
        return str(api.create_commit(repo, operations, commit_message="Upload by tfrobust").commit_url)


def local(model: str) -> str:
    """Return the path of a model on this machine; one on the Hugging Face Hub is downloaded, others are unchanged.

    `hf://owner/name` is the newest numbered version in the repository, or a SavedModel at its top;
    `hf://owner/name@revision/path` is a SavedModel or a file at a path, at a branch, tag or commit. The files go to
    the cache folder of huggingface_hub, each commit into a folder of its own, without links, which the scan refuses.
    Nothing is loaded here.

    Args:
        model: a path, or a name that begins with `hf://`.

    Raises:
        InputError (a ValueError): huggingface_hub is not installed, or there is no such model.
        Failure: the Hub cannot be reached, or does not permit the download.
    """
    if not model.startswith(SCHEME):
        return model
    named = _NAME.fullmatch(model)
    if named is None:
        raise InputError(f"{model[:200]} is not hf://owner/name, hf://owner/name@revision or hf://owner/name/path.")
    hub = _library()
    repo, path = named["repo"], (named["path"] or "").strip("/")
    with _one_line(hub, repo):
        hub.utils.validate_repo_id(repo)
        if hub.constants.HF_HUB_OFFLINE:
            raise Failure("HF_HUB_OFFLINE is set")
        repository = hub_files.Repository(hub.constants.ENDPOINT, repo, hub.get_token())
        commit, entries = repository.list(named["revision"])
        chosen, names = _choose(entries, path, model)
        folder = pathlib.Path(hub.constants.HF_HOME, "tfrobust", commit, repo)
        repository.fetch(commit, {name: entries[name] for name in names}, folder)
    return str(folder / chosen)


def _choose(entries: Collection[str], path: str, model: str) -> tuple[str, list[str]]:
    """Return the path of the model in its repository, and the names of its files."""
    prefix = f"{path}/" if path else ""
    if path in entries:
        return path, [path]
    if f"{prefix}saved_model.pb" not in entries:
        matches = [re.fullmatch(rf"{re.escape(prefix)}([0-9]{{1,18}})/saved_model\.pb", name) for name in entries]
        versions = [match[1] for match in matches if match]
        if not versions:
            raise InputError(f"{model[:200]} has neither saved_model.pb nor a numbered version with one.")
        prefix += f"{max(versions, key=int)}/"
    single, folders = ([prefix + part for part in parts] for parts in (_FILES, _FOLDERS))
    return prefix, [name for name in entries if name in single or name.startswith(tuple(folders))]


def _library():
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError:
        raise InputError(
            "the Hugging Face Hub needs the package huggingface_hub: pip install 'tfrobust[hub]'."
        ) from None
    return huggingface_hub


@contextlib.contextmanager
def _one_line(hub, repo: str):
    """Convert the errors of huggingface_hub, and of the network below it, into one line."""
    missing = (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError)
    try:
        yield
    except (*missing, hub_files.NotOnHubError) as error:
        fault = f"the Hugging Face Hub has no {repo}, or it is private (log in with `hf auth login`)"
        raise InputError(f"{fault}: {_first_line(error)}") from error
    except InputError as error:
        message = str(error)
        raise InputError(message if repo in message else f"{repo} on the Hugging Face Hub: {message}.") from error
    except ValueError as error:  # a name that cannot exist, or a card that the Hub refuses
        raise InputError(f"{repo}: {' '.join(str(error).split())}") from error
    except Exception as error:  # noqa: BLE001 - the HTTP client below has exceptions of its own
        raise Failure(f"the Hugging Face Hub: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
