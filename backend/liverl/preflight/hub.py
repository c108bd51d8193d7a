"""A model that is named by its id on the Hugging Face Hub: in the cache, on the hub, or nowhere. Nothing is downloaded
but its config.json, which is kept nowhere."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from liverl.util.regular_file import read_text

_SECONDS = 5.0  # for each answer of the hub
_ENDPOINT = "https://huggingface.co"
_BRANCH = "main"
_TRUE = ("1", "on", "yes", "true")
_MAX_BYTES = 4 << 20
# As huggingface_hub validates it: one slash at most, and nothing that a path or an option could be.
_ID = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_WAYS = "correct model.model_path, or download the model and set it to the folder"


class _OwnToken(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to another host without the user's token."""

    def redirect_request(  # the types are those of the base class
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The next request; None if there is none."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and following.host != req.host:
            following.remove_header("Authorization")
        return following


class HubAnswer(NamedTuple):
    """What the hub says of a model: ``status`` ok, fail, or skipped where it did not answer; ``config``: the text of
    its config.json, empty unless ok."""

    status: Literal["ok", "fail", "skipped"]
    text: str
    fix: str = ""
    config: bytes = b""


def is_id(name: str) -> bool:
    """Whether ``name`` can be the id of a model: ``Qwen/Qwen3-0.6B``, ``gpt2``."""
    return _ID.fullmatch(name) is not None and not name.endswith((".", "-", ".git"))


def cache_directory(env: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps what it downloads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return Path(env[name]).expanduser()
    return _home(env) / "hub"


def _home(env: Mapping[str, str]) -> Path:
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]).expanduser()
    base = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(base, "huggingface")


def cached(name: str, env: Mapping[str, str]) -> Path | None:
    """The folder of the cached model's newest files; None if there is none with a config.json.

    Raises:
        OSError: the cache cannot be read.
    """
    place = cache_directory(env) / f"models--{name.replace('/', '--')}"
    try:
        commit = read_text(place / "refs" / _BRANCH).strip()
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None
    folder = place / "snapshots" / commit
    return folder if commit and (folder / "config.json").is_file() else None


def offline(env: Mapping[str, str]) -> str:
    """The variable that forbids downloads; "" if none does."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if env.get(name, "").lower() in _TRUE), "")


def elsewhere(env: Mapping[str, str]) -> str:
    """The variable by which another hub is used; "" if none does."""
    names = ("VLLM_USE_MODELSCOPE", "VERL_USE_MODELSCOPE")
    return next((name for name in names if env.get(name, "").lower() in _TRUE), "")


def ask(name: str, env: Mapping[str, str]) -> HubAnswer:
    """Ask the hub for the config.json of a model, with the token that ``env`` or the user's token file has."""
    base = env.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT
    url = f"{base}/{urllib.parse.quote(name)}/resolve/{_BRANCH}/config.json"
    token = _token(env)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        opener = urllib.request.build_opener(_OwnToken)
        with opener.open(request, timeout=_SECONDS) as answer:
            return HubAnswer("ok", f"{base} has it", config=answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return _refused(name, base, error.code, error.headers.get("X-Error-Code", ""), bool(token))
    except ValueError:  # its text may have the token
        return HubAnswer(
            "skipped", f"whether {base} has it is not known: the address, or the token, is not valid"
        )
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        return HubAnswer("skipped", f"whether {base} has it is not known: it does not answer ({why})")


def _refused(name: str, base: str, status: int, code: str, token: bool) -> HubAnswer:
    if code == "GatedRepo" or status == 403:
        fix = f"accept its licence at {base}/{name}" + ("" if token else ", and set HF_TOKEN")
        return HubAnswer("fail", f"access to {name} is restricted (HTTP {status})", fix)
    if code == "EntryNotFound":
        return HubAnswer("fail", f"{name} on {base} has no config.json", _WAYS)
    if status in (401, 404):
        private = "" if token else "; if it is private, set HF_TOKEN"
        return HubAnswer("fail", f"{base} has no model {name} (HTTP {status})", _WAYS + private)
    return HubAnswer("skipped", f"whether {base} has it is not known: it answered HTTP {status}")


def _token(env: Mapping[str, str]) -> str:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if env.get(name):
            return env[name].strip()
    path = env.get("HF_TOKEN_PATH") or _home(env) / "token"
    try:
        return read_text(Path(path)).strip()
    except (OSError, ValueError):
        return ""
