"""The repository of a start: what can be one, where it is cloned from, and into which folder. No store and no Flask.

`CLONED` is the one rule: requests are checked with it, the OpenAPI document shows it, and the console has it too
(`console/lib/repository.js`). `tests/core/repositories.json` lists what it takes and refuses, for both languages.
"""

import re

from core.scopes import REPOSITORY_HOSTS

#: OWNER/NAME, a URL, or USER@HOST:PATH; the last part is the name of a folder
CLONED = (
    r"^(?:(?!(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)/)[A-Za-z0-9_][A-Za-z0-9_.-]*/(?:[A-Za-z0-9_.-]+/)*"
    r"|(?:https?|ssh|git)://[!-.0-~]+/(?:[!-.0-~]*/)*"
    r"|file:///(?:[!-.0-~]*/)*"
    r"|[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9_][A-Za-z0-9_.-]*:(?:[!-.0-~]*/)*)"
    r"(?!\.{0,2}(?:\.git)?/?$)[A-Za-z0-9_.][A-Za-z0-9_.-]*/?$"
)

_CLONED = re.compile(CLONED)

REPOSITORY_FAULT = "Write owner/name or a URL that begins with https:, ssh: or git@"


def clone_fault(repository: str, provider: str | None) -> str:
    """Why nothing can be cloned under that name; empty if something can."""
    if not _CLONED.fullmatch(repository):
        return REPOSITORY_FAULT
    if _is_short(repository) and (provider or "github") not in REPOSITORY_HOSTS:
        return f"Write its URL: this server does not know where {provider} is"
    return ""


def _is_short(repository: str) -> bool:
    """Whether a repository is named OWNER/NAME, and so needs a provider to be found."""
    return ":" not in repository


def clone_url(repository: str, provider: str | None) -> str:
    """What Git clones."""
    short = repository.removesuffix("/").removesuffix(".git")
    return f"https://{REPOSITORY_HOSTS[provider or 'github']}/{short}.git" if _is_short(repository) else repository


def clone_folder(repository: str) -> str:
    """The name of the folder that Git clones into."""
    return re.split("[/:]", repository.removesuffix("/"))[-1].removesuffix(".git")


def clone_host(repository: str, provider: str | None) -> str:
    """The host that a clone reaches, in lower case; empty if there is none."""
    if clone_fault(repository, provider):
        return ""
    scheme, _, rest = clone_url(repository, provider).rpartition("://")
    authority = re.split("/" if scheme else ":", rest, maxsplit=1)[0]
    return authority.rpartition("@")[2].partition(":")[0].lower()
