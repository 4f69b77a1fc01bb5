"""An export on the Hub. Imports no torch: what cannot be uploaded is refused at once."""

import shlex
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError

from potluck.files import one_line
from potluck.node.storage.card import HUB_ID
from potluck.types import PotluckError
from potluck.version import __version__


class UploadError(PotluckError):
    """An export that did not reach the Hub; the message says how to go on."""


def require_uploadable(repo: str) -> None:
    """Raise UploadError for what can be known before anything is written or sent."""
    if "/" not in repo or not HUB_ID.fullmatch(repo):
        raise UploadError(
            f"--push is {repo!r}; expected USER/NAME, each of letters, digits, '-', '_' and '.'"
        )
    if not get_token():
        raise UploadError(
            "--push needs a token of the Hub with the right to write: 'hf auth login' keeps one, "
            "or set HF_TOKEN"
        )


def upload(folder: Path, repo: str, *, private: bool = False) -> str:
    """Make a new model of the Hub from an export, and return its address.

    Files of another model that stay beside the new ones may change how it is loaded, so a model
    that is there already is left alone.

    Args:
        repo: USER/NAME.
        private: show it to its owners alone; False: as the account has it, public as a rule.

    Raises:
        UploadError: it did not get there, or not whole; ``folder`` stays as it is.
    """
    api = HfApi()
    try:
        address = api.create_repo(repo, private=private or None)
        message = f"Export of Potluck {__version__}"
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    except Exception as error:  # of two HTTP libraries, and of threads that upload
        why = _reason(error, repo, api.endpoint)
        raise UploadError(f"{why}. {way_on(folder, repo, private=private)}") from error
    return str(address)


def way_on(folder: Path, repo: str, *, private: bool) -> str:
    """Say where the export is, and the command of the Hub's own client that uploads it."""
    words = ["hf", "upload", repo, str(folder), *(["--private"] if private else [])]
    return f"The export is in {folder}; to go on: {shlex.join(words)}"


def _reason(error: BaseException, repo: str, endpoint: str) -> str:
    """Write a line about what the client raised, with what its user can do."""
    while not isinstance(error, HfHubHTTPError) and error.__cause__:
        error = error.__cause__  # a thread's error says which file, its cause says why
    status, answer = 0, ""
    if isinstance(error, HfHubHTTPError):
        status, answer = error.response.status_code, one_line(error.server_message or "", 200)
    ways = {
        401: f"{endpoint} refuses the token; make a new one with the right to write at "
        f"{endpoint}/settings/tokens, then 'hf auth login' or HF_TOKEN",
        403: f"the token may not write to {repo}; it needs the right to write, and the name "
        f"before '/' must be yours or your organisation's (the Hub: {answer or 'no reason'})",
        409: f"{repo} is on the Hub already; choose another name, or add to it as below",
    }
    said = " ".join(str(error).split()) or type(error).__name__
    return ways.get(status, f"{repo} did not get to {endpoint}: {said.rstrip('.')}")
