// What can be the repository of a start: the server's rule (`core/repositories.py`), told while a person types.

/** OWNER/NAME, a URL, or USER@HOST:PATH; the last part is the name of a folder. */
export const CLONED =
  /^(?:(?!(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)\/)[A-Za-z0-9_][A-Za-z0-9_.-]*\/(?:[A-Za-z0-9_.-]+\/)*|(?:https?|ssh|git):\/\/[!-.0-~]+\/(?:[!-.0-~]*\/)*|file:\/\/\/(?:[!-.0-~]*\/)*|[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9_][A-Za-z0-9_.-]*:(?:[!-.0-~]*\/)*)(?!\.{0,2}(?:\.git)?\/?$)[A-Za-z0-9_.][A-Za-z0-9_.-]*\/?$/;

/** What is wrong with a repository, in words; "" for none, and where none is named. */
export const repositoryFault = (text) =>
  text && !CLONED.test(text) ? "Write owner/name or a URL that begins with https:, ssh: or git@" : "";
